//! Recipes from the code between a return address and the function's return, for code whose
//! functions and frames are not known.
//!
//! A path from a return address to a `ret` restores the stack of the function's entry. That locates
//! the caller's return address, wherever the function begins. But after a call that never returns,
//! another function's code may follow. So a path counts only with one of two kinds of evidence. One
//! is that a walk through the frame saw the frame pointer point to the slot from which the path
//! restores it. The other is that every path sets the stack pointer from the frame pointer.

use std::collections::{HashMap, HashSet};

use super::recipe::{Frame, Recipe};
use crate::addr::Svma;
use crate::isa::{Control, Facts, FramePointer, FrameState, Insn, Insns, StackPlace, WORD, decode};

/// The slot of a saved frame pointer, in words from the canonical frame address: right below the
/// return address.
const SAVED: i16 = -2;
/// The recipe of a frame whose frame pointer is in the register.
pub const BY_FRAME_POINTER: Recipe = Recipe::FromFramePointer(Frame {
    cfa: 2 * WORD as i32,
    caller_frame_pointer: SAVED,
});
/// The maximum number of instructions to examine.
const MOST_INSNS: usize = 2000;

/// The recipe of the call that returns to `after`, and then those of later calls in the same frame,
/// each with the return address. The later calls need the same evidence. Empty without evidence.
///
/// The frame pointer was seen `distance` bytes above the stack pointer. `bytes` returns the code
/// from an address on.
pub fn by_epilogue<'d>(
    bytes: impl Fn(Svma) -> Option<&'d [u8]>,
    after: Svma,
    distance: i64,
) -> Vec<(Svma, Recipe)> {
    if distance < 0 || distance % WORD != 0 {
        return Vec::new();
    }
    calls_of(&Ways::from(&bytes, after, Tails::Follow), after, distance)
}

/// The recipes for `from`, the start of `ways`, and for calls in the same frame. At `from`, the
/// frame pointer points `distance` bytes above the stack pointer.
fn calls_of(ways: &Ways, from: Svma, distance: i64) -> Vec<(Svma, Recipe)> {
    let is_at = |place| move |end: &FrameState| restored_from(end) == Some(place);
    let is_there = is_at(StackPlace::Stack(distance));
    if ways.ends.iter().any(|(_, end)| is_there(end)) {
        return ways.calls_to(from, is_there, |at| by_stack(distance, at));
    }
    let by_frame = is_at(StackPlace::Frame(0));
    let mut known = ways
        .ends
        .iter()
        .filter(|(_, end)| end.stack_pointer != StackPlace::Unknown);
    let is_any = ways.ends.iter().any(|(_, end)| by_frame(end));
    let is_frame = is_any && known.all(|(_, end)| by_frame(end));
    if is_frame {
        ways.calls_to(from, by_frame, |_| Some(BY_FRAME_POINTER))
    } else {
        Vec::new()
    }
}

/// The recipes of calls in the function that begins at `entry`, each with the return address. Empty
/// unless the function sets up a frame pointer at once, and restores it.
pub fn by_entry<'d>(bytes: impl Fn(Svma) -> Option<&'d [u8]>, entry: Svma) -> Vec<(Svma, Recipe)> {
    let code = bytes(entry).unwrap_or_default();
    let mut insns = decode(code, entry).filter(|insn| !insn.is_landing_marker());
    let (Some(push), Some(mov)) = (insns.next(), insns.next()) else {
        return Vec::new();
    };
    if !push.pushes_frame_pointer() || !mov.makes_frame_pointer() {
        return Vec::new();
    }
    // After the two instructions, the frame pointer equals the stack pointer.
    let start = Svma(mov.end());
    let mut found = calls_of(&Ways::from(&bytes, start, Tails::End), start, 0);
    found.retain(|call| call.0 != start);
    found
}

/// The targets of direct calls and tail calls in the code that can run from `from` on. A target may
/// occur several times.
pub fn callees<'d>(bytes: impl Fn(Svma) -> Option<&'d [u8]>, from: Svma) -> Vec<Svma> {
    Ways::from(&bytes, from, Tails::End).callees
}

/// The recipe by the stack pointer, which is at `at`. The caller's frame pointer is saved at
/// `saved`, right below the return address. `None` if `at` is not known or above `saved`, or if the
/// distance does not fit into a recipe.
fn by_stack(saved: i64, at: StackPlace) -> Option<Recipe> {
    match at {
        StackPlace::Stack(at) if at <= saved => Some(Recipe::FromStackPointer(Frame {
            cfa: i32::try_from(saved - at + 2 * WORD).ok()?,
            caller_frame_pointer: SAVED,
        })),
        _ => None,
    }
}

/// The slot that the frame pointer was loaded from. `None` unless that slot is right below the
/// stack pointer, which points to the return address at an exit.
fn restored_from(state: &FrameState) -> Option<StackPlace> {
    match state.frame_pointer {
        FramePointer::Loaded(StackPlace::Unknown) => None,
        FramePointer::Loaded(saved) if saved.plus(WORD) == state.stack_pointer => Some(saved),
        _ => None,
    }
}

/// The code that can run from an address on, with the state at the first arrival at each
/// instruction.
struct Ways {
    /// The instructions, with the state before each.
    seen: HashMap<u64, FrameState>,
    /// The transitions between instructions, with the state at each.
    steps: Vec<Step>,
    /// All calls, direct and indirect.
    calls: Vec<Call>,
    /// The callees with fixed addresses.
    callees: Vec<Svma>,
    /// The returns and tail calls, with the state before each.
    ends: Vec<(u64, FrameState)>,
    tails: Tails,
}

/// The treatment of jumps that leave the function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tails {
    /// The code at their targets is followed.
    Follow,
    /// They are exits if the frame pointer has been restored.
    End,
}

impl Ways {
    /// Follows the code from address `from` on. `bytes` returns the code from an address on, `None`
    /// if there is none.
    fn from<'d>(bytes: &impl Fn(Svma) -> Option<&'d [u8]>, from: Svma, tails: Tails) -> Self {
        let mut ways = Self {
            seen: HashMap::new(),
            steps: Vec::new(),
            calls: Vec::new(),
            callees: Vec::new(),
            tails,
            ends: Vec::new(),
        };
        let mut facts = Facts::default();
        let mut work = vec![(from.0, FrameState::AFTER_CALL)];
        while let Some((at, state)) = work.pop() {
            if let Some(code) = bytes(Svma(at)) {
                ways.follow(bytes, decode(code, Svma(at)), state, &mut facts, &mut work);
            }
        }
        ways
    }

    /// Follows consecutive instructions, and adds the targets of their jumps to `work`.
    fn follow<'d>(
        &mut self,
        bytes: &impl Fn(Svma) -> Option<&'d [u8]>,
        mut insns: Insns<'_>,
        mut state: FrameState,
        facts: &mut Facts,
        work: &mut Vec<(u64, FrameState)>,
    ) {
        let mut insn = Insn::default();
        while insns.read(&mut insn) {
            let at = insn.at();
            if self.seen.len() == MOST_INSNS || self.seen.contains_key(&at) {
                break;
            }
            self.seen.insert(at, state);
            if insn.is_jump() {
                let to = insn.target();
                if self.tails == Tails::End && restored_from(&state).is_some() {
                    self.ends.push((at, state));
                    self.callees.push(Svma(to));
                } else {
                    work.push((to, state));
                    self.steps.push(Step { at, to, state });
                }
            }
            match insn.control() {
                Control::Next | Control::ConditionalJump => {}
                Control::Call | Control::IndirectCall => {
                    let after = Svma(insn.end());
                    self.calls.push(Call { at, after });
                    let to = insn.target();
                    self.callees.extend((to != 0).then_some(Svma(to)));
                }
                Control::Return => {
                    self.ends.push((at, state));
                    break;
                }
                Control::IndirectJump => {
                    let is_end = restored_from(&state).is_some();
                    self.ends.extend(is_end.then_some((at, state)));
                    break;
                }
                _ => break,
            }
            if takes_return_address(bytes, &insn) {
                self.ends.push((at, state));
                break;
            }
            let Some(after) = state.after(facts, &insn) else {
                break;
            };
            state = after;
            let to = insn.end();
            self.steps.push(Step { at, to, state });
        }
    }

    /// The recipe for `after`, and those of calls in the same frame.
    ///
    /// These calls lead to an end for which `is_end` is true, and the frame pointer is still
    /// unchanged at each. `recipe` makes a recipe from the stack pointer at a call.
    fn calls_to(
        &self,
        after: Svma,
        is_end: impl Fn(&FrameState) -> bool,
        recipe: impl Fn(StackPlace) -> Option<Recipe>,
    ) -> Vec<(Svma, Recipe)> {
        let Some(asked) = recipe(StackPlace::Stack(0)) else {
            return Vec::new();
        };
        let leads = self.leading_to(is_end);
        let further = self.calls.iter().filter_map(|call| {
            let state = self
                .seen
                .get(&call.at)
                .filter(|_| leads.contains(&call.at))?;
            let is_same = state.frame_pointer == FramePointer::Kept;
            Some((call.after, recipe(state.stack_pointer).filter(|_| is_same)?))
        });
        let further = further.filter(|call| call.0 != after);
        std::iter::once((after, asked)).chain(further).collect()
    }

    /// The addresses of instructions that lead to an end for which `is_end` is true.
    fn leading_to(&self, is_end: impl Fn(&FrameState) -> bool) -> HashSet<u64> {
        let ends = self.ends.iter().filter(|(_, end)| is_end(end));
        let mut work: Vec<u64> = ends.map(|&(at, _)| at).collect();
        let mut leads: HashSet<u64> = work.iter().copied().collect();
        let is_step = |step: &&Step| self.seen.get(&step.to) == Some(&step.state);
        let mut before: HashMap<u64, Vec<u64>> = HashMap::new();
        for step in self.steps.iter().filter(is_step) {
            before.entry(step.to).or_default().push(step.at);
        }
        while let Some(at) = work.pop() {
            let before = before.get(&at).into_iter().flatten();
            work.extend(before.filter(|&&at| leads.insert(at)));
        }
        leads
    }
}

/// A call on one of the paths.
struct Call {
    /// The address of the call instruction.
    at: u64,
    /// The return address.
    after: Svma,
}

/// A transition from one instruction to another.
struct Step {
    /// The address of the instruction that control leaves.
    at: u64,
    /// The address of the instruction that control reaches.
    to: u64,
    /// The register values at the transition.
    state: FrameState,
}

/// True if `insn` pops the return address, which is pushed again after other words have been
/// popped. Functions that pop a variable number of arguments do so.
fn takes_return_address<'d>(bytes: &impl Fn(Svma) -> Option<&'d [u8]>, insn: &Insn) -> bool {
    /// The maximum number of instructions to examine between the two, more than an epilogue of this
    /// kind has.
    const NEAR: usize = 6;
    let Some(popped) = insn.popped() else {
        return false;
    };
    let after = Svma(insn.end());
    let code = bytes(after).unwrap_or_default();
    let mut next = decode(code, after).take(NEAR);
    next.any(|other| other.pushed() == Some(popped))
        && next.next().is_some_and(|insn| insn.is_return())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::oracle::Folder;

    /// The recipe of the first call in `function`, with rbp `distance` bytes above the stack
    /// pointer.
    fn recipe(body: &str, distance: i64) -> Option<Recipe> {
        let assembly = format!(".text\n.global function\nfunction: {body}\n");
        let flags = ["-shared", "-nostdlib"];
        let data = Folder::new().build("cc", &flags, &[("function.s", &assembly)]);
        let image = Image::parse(&data).expect("an image");
        let start = image.functions().with_name(|n| n == "function")[0]
            .range
            .start;
        let code = image.bytes_from(start).expect("code");
        let mut calls = decode(code, start).filter(Insn::is_call);
        let after = Svma(calls.next().expect("a call").end());
        let found = by_epilogue(|at| image.bytes_from(at), after, distance);
        found.first().map(|&(at, recipe)| {
            assert_eq!(at, after);
            recipe
        })
    }

    fn from_stack(cfa: i32) -> Option<Recipe> {
        Some(Recipe::FromStackPointer(Frame {
            cfa,
            caller_frame_pointer: SAVED,
        }))
    }

    const WITH_FRAME: &str = "push %rbp; mov %rsp, %rbp; push %rbx; sub $24, %rsp; call *%rax;";

    #[test]
    fn what_pops_the_frame_pointer_shows_the_frame() {
        let code = format!("{WITH_FRAME} add $24, %rsp; pop %rbx; pop %rbp; ret");
        assert_eq!(recipe(&code, 32), from_stack(48));
        assert_eq!(recipe(&code, 24), None, "seen elsewhere");
    }

    #[test]
    fn what_goes_by_the_frame_pointer_says_so() {
        let by_frame = Some(BY_FRAME_POINTER);
        for epilogue in [
            "lea -8(%rbp), %rsp; pop %rbx; pop %rbp; ret",
            "mov -8(%rbp), %rbx; leave; ret",
        ] {
            let code = format!("{WITH_FRAME} {epilogue}");
            assert_eq!(recipe(&code, 32), by_frame, "{epilogue}");
        }
    }

    #[test]
    fn what_takes_its_arguments_off_has_a_frame() {
        let take = "leave; pop %rcx; lea 40(%rsp,%r15,8), %rsp; push %rcx; ret";
        assert_eq!(
            recipe(&format!("{WITH_FRAME} {take}"), 32),
            Some(BY_FRAME_POINTER)
        );
        let other = "leave; pop %rcx; ret";
        assert_eq!(recipe(&format!("{WITH_FRAME} {other}"), 32), None);
    }

    #[test]
    fn a_way_that_was_seen_counts() {
        let ways = "test %eax, %eax; je 1f; add $24, %rsp; pop %rbx; pop %rbp; ret;";
        let same =
            format!("{WITH_FRAME} {ways} 1: call *%rdx; add $24, %rsp; pop %rbx; pop %rbp; ret");
        assert_eq!(recipe(&same, 32), from_stack(48));
        // The code after a noreturn call belongs to another function.
        let other = format!("{WITH_FRAME} {ways} 1: call *%rdx; add $8, %rsp; ret");
        assert_eq!(recipe(&other, 32), from_stack(48));
        let leave =
            format!("{WITH_FRAME} test %eax, %eax; je 1f; leave; ret; 1: add $8, %rsp; ret");
        assert_eq!(recipe(&leave, 32), None);
        let aligned = format!(
            "{WITH_FRAME} mov %rsp, %r10; and $-16, %rsp; mov %r10, (%rsp); call *%rdx; mov (%rsp), %rsp; \
             lea -8(%rbp), %rsp; pop %rbx; pop %rbp; ret"
        );
        assert_eq!(recipe(&aligned, 32), Some(BY_FRAME_POINTER));
        let without_end = format!("{WITH_FRAME} 1: push %rax; jmp 1b");
        assert_eq!(recipe(&without_end, 32), None);
        let changed =
            format!("{WITH_FRAME} mov %rax, %rbp; lea -8(%rbp), %rsp; pop %rbx; pop %rbp; ret");
        assert_eq!(recipe(&changed, 32), None);
    }
}
