//! Epilogues that pop a variable number of arguments.

use super::graph::Flow;
use super::height::Heights;
use crate::isa::Control;

/// For each instruction, true if it is in an epilogue that removes the function's arguments, and
/// not the epilogue's first instruction. The epilogue pops the return address and the arguments
/// above it, and pushes the return address again:
///
/// ```text
/// pop a register
/// add the size of the arguments to the stack pointer
/// push the register
/// return
/// ```
pub fn epilogues(flow: &Flow, heights: &Heights) -> Vec<bool> {
    let mut found = vec![false; flow.insns.len()];
    for index in 0..flow.insns.len() {
        if let Some(end) = returns_past_arguments(flow, heights, index) {
            found[index + 1..=end].fill(true);
        }
    }
    found
}

/// The index in [`Flow::insns`] of the return of an epilogue that pops the function's arguments and
/// begins at `index`; `None` if none begins at `index`.
pub fn returns_past_arguments(flow: &Flow, heights: &Heights, index: usize) -> Option<usize> {
    /// The maximum number of instructions in the epilogue.
    const NEAR: usize = 6;
    let pop = &flow.insns[index];
    let popped = pop.popped().filter(|_| heights.before(index) == Some(0))?;
    let rest = flow.insns[index..].windows(2).skip(1).take(NEAR);
    for (at, pair) in (index + 1..).zip(rest) {
        if pair[0].control() != Control::Next {
            return None;
        }
        if pair[0].pushed() == Some(popped) && pair[1].is_return() {
            return Some(at + 1);
        }
    }
    None
}
