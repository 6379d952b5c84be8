//! Epilogues that pop a variable number of arguments.

use iced_x86::{FlowControl, Mnemonic, OpKind};

use super::graph::Flow;
use super::height::Heights;

/// For each instruction, true if it is in an epilogue that pops the return address and the
/// arguments above it, and pushes the return address again:
///
/// ```text
/// pop  %rcx
/// lea  8(%rsp, %rdx, 8), %rsp
/// push %rcx
/// ret
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

/// The index of the return of an epilogue of this kind that begins at `index`.
pub fn returns_past_arguments(flow: &Flow, heights: &Heights, index: usize) -> Option<usize> {
    /// The most instructions of the epilogue.
    const NEAR: usize = 6;
    let pop = &flow.insns[index];
    let takes = pop.mnemonic() == Mnemonic::Pop
        && pop.op0_kind() == OpKind::Register
        && heights.before(index) == Some(0);
    if !takes {
        return None;
    }
    let rest = flow.insns[index..].windows(2).skip(1).take(NEAR);
    for (at, pair) in (index + 1..).zip(rest) {
        if pair[0].flow_control() != FlowControl::Next {
            return None;
        }
        let is_put_back = pair[0].mnemonic() == Mnemonic::Push
            && pair[0].op0_kind() == OpKind::Register
            && pair[0].op0_register() == pop.op0_register();
        if is_put_back && pair[1].flow_control() == FlowControl::Return {
            return Some(at + 1);
        }
    }
    None
}
