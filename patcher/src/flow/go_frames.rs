//! Recipes for the frames of Go's functions, from the stack heights that Go's runtime uses itself
//! (runtime/traceback.go, `funcspdelta`).
//!
//! The stated heights of a function are believed if each of its instructions moves the stack
//! pointer accordingly. Functions that switch stacks fail this test (`systemstack`, `mcall`,
//! `asmcgocall`).

use super::module::ModuleContext;
use super::recipe::{Frame, Recipe};
use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Facts, Insn, WORD};
use crate::tables::{GoFunction, Pclntab};

/// The slot of the caller's frame pointer, in words from the canonical frame address: right below
/// the return address.
const SAVED: i16 = -2;

/// The recipes of the calls of `function`, by return address. `None` if its instructions contradict
/// the table, or if either cannot be read.
pub fn recipes(
    image: &Image<'_>,
    table: &Pclntab<'_>,
    function: &GoFunction<'_>,
) -> Option<Vec<(Svma, Recipe)>> {
    let swept = sweep::linear(image, std::slice::from_ref(&function.range));
    let swept = swept.filter(|swept| swept.complete)?;
    let heights = StackHeights(table.stack_heights(function).collect());
    if heights.0.is_empty() || heights.0.iter().any(|&(_, height)| height < 0) {
        return None;
    }
    let mut facts = Facts::default();
    let mut found = Vec::new();
    let mut has_saved = false;
    for insn in &swept.insns {
        let Some(height) = heights.at(insn.at()) else {
            // The rest is filler from the linker.
            break;
        };
        if !insn.ends_block() && !moves_as_stated(&mut facts, insn, height, &heights) {
            return None;
        }
        // The saved value stays there, even if the register changes later.
        if insn.saves_frame_pointer(height) {
            has_saved = true;
        } else if !has_saved && facts.writes_frame_pointer(insn) {
            return None;
        }
        if insn.is_call() {
            let frame = Frame {
                cfa: i32::try_from(height + WORD).ok()?,
                caller_frame_pointer: if has_saved && height > 0 { SAVED } else { 0 },
            };
            found.push((Svma(insn.end()), Recipe::FromStackPointer(frame)));
        }
    }
    Some(found)
}

/// True if Go's linker made the file, even if its function table cannot be found.
pub fn is_of_go(image: &Image<'_>) -> bool {
    const SECTIONS: [&str; 2] = [".note.go.buildid", ".go.buildinfo"];
    SECTIONS.iter().any(|name| image.section(name).is_some())
}

/// Return addresses without a caller, in a Go program, each with [`Recipe::Outermost`].
///
/// These are the return addresses of goroutines, and of calls in functions that run first on a
/// stack (runtime/asm_amd64.s, `rt0_go`, `goexit`; runtime/sys_linux_amd64.s, `clone`).
pub fn outermost(image: &Image<'_>, context: &ModuleContext<'_>) -> Vec<(Svma, Recipe)> {
    const FIRST: [&str; 6] = [
        "runtime.rt0_go",
        "runtime.rt0_go.abi0",
        "runtime.clone",
        "runtime.clone.abi0",
        "runtime.goexit",
        "runtime.goexit.abi0",
    ];
    let first = image.functions().with_name(|name| FIRST.contains(&name));
    let calls = first.iter().flat_map(|function| {
        let swept = sweep::linear(image, std::slice::from_ref(&function.range));
        let insns = swept.map_or_else(Vec::new, |swept| swept.insns);
        insns.into_iter().filter(Insn::is_call)
    });
    let calls = calls.map(|call| Svma(call.end()));
    let returns = context.goroutine_ends(image).iter().copied();
    returns
        .chain(calls)
        .map(|after| (after, Recipe::Outermost))
        .collect()
}

/// The distances by which the stack pointer has moved down, in bytes, each with the end of its
/// code.
struct StackHeights(Vec<(Svma, i64)>);

impl StackHeights {
    fn at(&self, at: u64) -> Option<i64> {
        let index = self.0.partition_point(|(end, _)| end.0 <= at);
        self.0.get(index).map(|&(_, height)| height)
    }
}

/// True if the stack height after `insn` is as stated. If `insn` does not move the stack pointer,
/// unrelated code may follow.
fn moves_as_stated(facts: &mut Facts, insn: &Insn, height: i64, heights: &StackHeights) -> bool {
    match facts.stack_change(insn) {
        Some(0) => true,
        Some(by) => heights.at(insn.end()) == Some(height - by),
        None => false,
    }
}
