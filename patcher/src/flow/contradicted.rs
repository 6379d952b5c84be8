//! Unwind rows that the instructions contradict.
//!
//! Clang merges the calls of a noreturn function, even calls at different stack heights. The unwind
//! table has only one height for the merged call, so unwinding by it skips frames:
//!
//! ```text
//!      push; push; push; push     height -48
//!      jmp  1f
//!      push; push                 height -32
//!  1:  call die                   the row says 56 bytes to the frame: true on one of the paths
//! ```
//!
//! From a correct row, any instruction except a call leads to a correct height. So the heights are
//! followed from the entry as a set per instruction, and compared with the rows at calls. The rows
//! are trusted for the bytes that a callee pops, and at places that control reaches from elsewhere.

use std::ops::Range;

use super::described;
use super::recipe::{Frame, Recipe};
use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Facts, Insn, WORD};

/// The maximum number of heights that are tracked at an instruction.
const MOST_HEIGHTS: usize = 4;

/// The calls with rows that the instructions contradict: the return address, and the recipe that
/// holds. Sorted by return address.
pub fn contradicted(image: &Image<'_>) -> Vec<(Svma, Recipe)> {
    let mut found = Vec::new();
    for (range, rows) in image.unwind().moving(described::recipe) {
        found.extend(of_function(image, range, &rows));
    }
    found.sort_unstable_by_key(|(after, _)| *after);
    found
}

/// A row and its start address; `None` if the row is not a recipe.
type Row = (Svma, Option<Recipe>);

/// Like `contradicted`, for one function with ordered rows.
fn of_function(image: &Image<'_>, range: Range<Svma>, rows: &[Row]) -> Vec<(Svma, Recipe)> {
    let swept = sweep::linear(image, &[range]).filter(|swept| swept.complete);
    let Some(swept) = swept else {
        return Vec::new();
    };
    let stated = stated(&swept.insns, rows);
    let heights = heights(&swept.insns, &stated);
    let calls = swept
        .insns
        .iter()
        .enumerate()
        .filter(|(_, insn)| insn.is_call());
    let corrected = calls.filter_map(|(index, call)| {
        let frame = stated[index]?;
        let recipe = match heights[index].as_slice() {
            [] => None,
            [height] if *height == height_of(frame) => None,
            [height] => Some(Recipe::FromStackPointer(Frame {
                cfa: i32::try_from(WORD - height).ok().filter(|_| *height <= 0)?,
                ..frame
            })),
            _ => Some(Recipe::Ambiguous),
        };
        Some((Svma(call.end()), recipe?))
    });
    corrected.collect()
}

/// For each instruction, the frame relative to the stack pointer that its row states.
fn stated(insns: &[Insn], rows: &[Row]) -> Vec<Option<Frame>> {
    let mut rows = rows.iter().peekable();
    let mut current = None;
    let stated = insns.iter().map(|insn| {
        while let Some((_, row)) = rows.next_if(|(start, _)| start.0 <= insn.at()) {
            current = match row {
                Some(Recipe::FromStackPointer(frame)) => Some(*frame),
                _ => None,
            };
        }
        current
    });
    stated.collect()
}

fn height_of(frame: Frame) -> i64 {
    WORD - i64::from(frame.cfa)
}

/// For each instruction, the heights on the paths from the entry.
fn heights(insns: &[Insn], stated: &[Option<Frame>]) -> Vec<Heights> {
    let mut found = vec![Heights::default(); insns.len()];
    let mut facts = Facts::default();
    let index_of = |at: u64| insns.binary_search_by_key(&at, Insn::at).ok();
    let row = |index: usize| stated[index].map(height_of);
    let mut is_seen = vec![false; insns.len()];
    let mut work = Vec::new();
    for seed in 0..insns.len() {
        let follows = seed > 0 && is_seen[seed - 1] && !insns[seed - 1].ends_block();
        // The row of padding may be that of the function's end.
        if is_seen[seed] || follows || insns[seed].is_padding() {
            continue;
        }
        // At a place that control reaches from elsewhere, the row is trusted.
        is_seen[seed] = true;
        found[seed] = Heights::one(row(seed));
        work.push(seed);
        while let Some(index) = work.pop() {
            let insn = &insns[index];
            let before = found[index];
            let change = facts
                .described_stack_change(insn)
                .filter(|_| row(index).is_some());
            let after = |to: usize| match change {
                // The callee may pop arguments, or may not return: then another block follows.
                Some(_) if insn.is_call() && row(to) != row(index) => Heights::default(),
                Some(change) => before.moved(change),
                None => Heights::one(row(to)),
            };
            let mut arrive = |to: usize| {
                let is_new = found[to].add(after(to));
                if !std::mem::replace(&mut is_seen[to], true) || is_new {
                    work.push(to);
                }
            };
            if insn.is_jump()
                && let Some(to) = index_of(insn.target())
            {
                arrive(to);
            }
            if !insn.ends_block() && index + 1 < insns.len() {
                arrive(index + 1);
            }
        }
    }
    found
}

/// A set of up to [`MOST_HEIGHTS`] heights: the stack pointer relative to the entry, in bytes.
#[derive(Clone, Copy, Default)]
struct Heights {
    /// The first `count` elements are the members.
    all: [i64; MOST_HEIGHTS],
    count: usize,
}

impl Heights {
    fn one(height: Option<i64>) -> Self {
        let mut heights = Self::default();
        heights.insert(height.unwrap_or_default());
        heights.count = usize::from(height.is_some());
        heights
    }

    fn moved(mut self, change: i64) -> Self {
        for height in &mut self.all {
            *height += change;
        }
        self
    }

    fn insert(&mut self, height: i64) {
        if self.count < MOST_HEIGHTS && !self.as_slice().contains(&height) {
            self.all[self.count] = height;
            self.count += 1;
        }
    }

    /// Adds heights as far as there is room. Returns true if one was added.
    fn add(&mut self, others: Self) -> bool {
        let before = self.count;
        for &height in others.as_slice() {
            self.insert(height);
        }
        self.count != before
    }

    fn as_slice(&self) -> &[i64] {
        &self.all[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Folder;

    /// The result for a library with one function of this body.
    fn found(body: &str) -> Vec<Recipe> {
        let flags = ["-shared", "-nostdlib"];
        let source = format!(
            ".text\n.type f, @function\nf: .cfi_startproc\npush %rax\n.cfi_def_cfa_offset 16\n{body}\n.cfi_endproc
            .size f, . - f\n.section .note.GNU-stack, \"\", @progbits\n"
        );
        let data = Folder::new().build("cc", &flags, &[("rows.s", &source)]);
        let image = Image::parse(&data).expect("an image");
        contradicted(&image)
            .into_iter()
            .map(|(_, recipe)| recipe)
            .collect()
    }

    const PUSHES: &str = "push $1; .cfi_def_cfa_offset 24; push $2; .cfi_def_cfa_offset 32;
        push $3; .cfi_def_cfa_offset 40; push $4; .cfi_def_cfa_offset 48";

    #[test]
    fn a_joined_call_has_several_heights() {
        let joined = format!("test %edi, %edi; je 1f\n{PUSHES}\n1: call *%rax; ud2");
        assert_eq!(found(&joined), [Recipe::Ambiguous]);
        let backward =
            format!("jmp 2f\n1: {PUSHES}\n3: call *%rax; ud2\n2: test %edi, %edi; je 3b; jmp 1b");
        assert_eq!(found(&backward), [Recipe::Ambiguous]);
    }

    #[test]
    fn one_height_replaces_the_row() {
        let single =
            format!("test %edi, %edi; je 1f\n{PUSHES}\ncall *%rax; ud2\n1: call *%rdx; ud2");
        let frame = Frame {
            cfa: 16,
            caller_frame_pointer: 0,
        };
        assert_eq!(found(&single), [Recipe::FromStackPointer(frame)]);
    }

    #[test]
    fn rows_that_are_right_stay() {
        let pops =
            format!("{PUSHES}\ncall *%rax; add $32, %rsp; .cfi_def_cfa_offset 16; call *%rdx");
        assert_eq!(found(&pops), []);
        // The callee pops its arguments, as the row after the call states.
        let taken = format!("{PUSHES}\ncall *%rax; .cfi_def_cfa_offset 16; nop; call *%rdx");
        assert_eq!(found(&taken), []);
        // The padding has the row of the end.
        let filled = format!(
            "{PUSHES}\ntest %edi, %edi; je 1f\n.cfi_remember_state\nadd $40, %rsp; .cfi_def_cfa_offset 8; ret; nop; nop
            .cfi_restore_state\n1: call *%rax; ud2"
        );
        assert_eq!(found(&filled), []);
    }
}
