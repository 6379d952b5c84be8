//! Recipes: how a frame is left at a call, from the instructions of its function alone, for code without
//! unwind tables. After Tallent, Mellor-Crummey and Fagan, "Binary analysis for measurement and
//! attribution of program performance" (PLDI 2009), section 3; only for return addresses, as nothing
//! else is looked up.

use super::height::{CallerFramePointer, Calls, Heights};
use super::{Flow, ModuleContext};
use crate::addr::Svma;
use crate::function::Function;
use crate::image::Image;
use crate::insn::is_call;

/// How the frame of a call's return address is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// The canonical frame address is the stack pointer plus so many bytes.
    FromStackPointer(Frame),
    /// It is the frame pointer plus so many bytes.
    FromFramePointer(Frame),
    /// Nothing has called this function.
    Outermost,
}

/// Where things of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes to the canonical frame address.
    pub cfa: i32,
    /// Where the caller's frame pointer is, in words from the canonical frame address; 0 where it is in
    /// its register.
    pub caller_frame_pointer: i16,
}

/// The recipes of a function's calls, by return address. Calls before which something is not known have
/// none.
pub fn recipes(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
) -> Vec<(Svma, Recipe)> {
    Flow::of(image, context, function).map_or_else(Vec::new, |flow| of_flow(&flow))
}

fn of_flow(flow: &Flow) -> Vec<(Svma, Recipe)> {
    of_heights(flow, &Heights::of(flow, Calls::Keep), |_| true)
}

/// The recipes of those calls of `flow` whose index is wanted; its stack heights are these.
pub(super) fn of_heights(
    flow: &Flow,
    heights: &Heights,
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<(Svma, Recipe)> {
    let calls = flow
        .insns
        .iter()
        .enumerate()
        .filter(|(index, insn)| is_call(insn) && is_wanted(*index));
    calls
        .filter_map(|(index, insn)| Some((Svma(insn.next_ip()), recipe(heights, index)?)))
        .collect()
}

fn recipe(heights: &Heights, index: usize) -> Option<Recipe> {
    const WORD: i64 = 8;
    // Heights count from the slot of the return address, which is the last word below the CFA.
    let words = match heights.caller_frame_pointer_before(index) {
        CallerFramePointer::InPlace => 0,
        CallerFramePointer::At(at) if at % WORD == 0 && at < 0 => (at - WORD) / WORD,
        CallerFramePointer::Zeroed => return Some(Recipe::Outermost),
        CallerFramePointer::At(_) | CallerFramePointer::Unknown => return None,
    };
    let frame = |at: i64| {
        Some(Frame {
            cfa: i32::try_from(WORD - at).ok()?,
            caller_frame_pointer: i16::try_from(words).ok()?,
        })
    };
    if let Some(height) = heights.before(index).filter(|&height| height <= 0) {
        return frame(height).map(Recipe::FromStackPointer);
    }
    let pointer = heights.frame_pointer_before(index)?;
    frame(pointer).map(Recipe::FromFramePointer)
}
