//! Where a function is left: returns, tail jumps, and the jumps that only look like one.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, OpKind};

use crate::addr::Svma;
use crate::image::{CfaAt, Image};

use super::tables::{self, Shape};
use super::{Flow, ends_block, is_jump, is_landing_marker, sweep};

/// An instruction after which the function's activation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The address of the instruction.
    pub at: Svma,
    /// How it leaves.
    pub kind: LeaveKind,
}

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveKind {
    /// `ret`, with whatever prefix or operand.
    Return,
    /// A direct jump while the stack is as at entry.
    Tail {
        /// Where it goes.
        target: Svma,
        /// Only if a condition holds?
        conditional: bool,
    },
    /// The same through a register or memory.
    TailIndirect,
    /// A jump through a pointer that may be a tail call or may stay in the function.
    Unclear,
    /// Another function's code simply follows; the leave's address is its first instruction.
    FallsThrough,
    /// A jump into another function's code while this one's frame still stands: its end is there.
    Astray,
}

/// Every leave of `flow` at an instruction that is `live`, ascending.
pub fn all(image: &Image<'_>, flow: &Flow, live: &impl Fn(u64) -> bool) -> Vec<Leave> {
    let mut leaves = Vec::new();
    for (index, insn) in flow.insns.iter().enumerate() {
        if !live(insn.ip()) {
            continue;
        }
        let kind = match insn.flow_control() {
            FlowControl::Return => Some(LeaveKind::Return),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                direct(image, flow, insn)
            }
            FlowControl::IndirectBranch if tables::is_indirect_jump(insn) => {
                indirect(image, flow, index)
            }
            _ => None,
        };
        let at = Svma(insn.ip());
        leaves.extend(kind.map(|kind| Leave { at, kind }));
        if falls_out(image, flow, insn) {
            let at = Svma(insn.next_ip());
            leaves.push(Leave { at, kind: LeaveKind::FallsThrough });
        }
    }
    leaves
}

fn direct(image: &Image<'_>, flow: &Flow, insn: &Instruction) -> Option<LeaveKind> {
    let target = insn.near_branch_target();
    if flow.contains(target) {
        return None;
    }
    let tail = match image.cfa_offset_from_rsp(Svma(insn.ip())) {
        CfaAt::RspPlus(8) => true,
        CfaAt::RspPlus(_) | CfaAt::Other => false,
        CfaAt::Unknown => starts_function(image, target),
    };
    Some(if tail {
        let conditional = insn.flow_control() == FlowControl::ConditionalBranch;
        LeaveKind::Tail { target: Svma(target), conditional }
    } else {
        LeaveKind::Astray
    })
}

fn indirect(image: &Image<'_>, flow: &Flow, index: usize) -> Option<LeaveKind> {
    let insn = &flow.insns[index];
    let shape = tables::shape(&flow.insns, &flow.branches, index);
    if shape == Shape::Offsets {
        return None;
    }
    match image.cfa_offset_from_rsp(Svma(insn.ip())) {
        CfaAt::RspPlus(8) => {}
        CfaAt::RspPlus(_) | CfaAt::Other => return None,
        CfaAt::Unknown => return Some(LeaveKind::Unclear),
    }
    // With the stack as at entry both a switch in a leaf function and a tail call look like this.
    // Without any label whose address is taken, there is nothing in here to jump to.
    match shape {
        _ if !flow.has_labels => Some(LeaveKind::TailIndirect),
        Shape::Addresses if insn.op0_kind() == OpKind::Memory => {
            let table = tables::indexed_absolute(insn)?;
            let word = image.bytes(Svma(table), 8).and_then(<[u8]>::first_chunk);
            let first = word.map(|w| u64::from_le_bytes(*w))?;
            (!flow.contains(first)).then_some(LeaveKind::TailIndirect)
        }
        _ => Some(LeaveKind::Unclear),
    }
}

/// Does `insn` end a range of the function and run on into what follows?
fn falls_out(image: &Image<'_>, flow: &Flow, insn: &Instruction) -> bool {
    let end = insn.next_ip();
    let calls = matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    !calls
        && !ends_block(insn)
        && !flow.contains(end)
        && flow.ranges.iter().any(|r| r.end.0 <= end && r.contains(&Svma(insn.ip())))
        && sweep::one(image, Svma(end)).is_some()
}

/// Is `at` the first byte of a function?
fn starts_function(image: &Image<'_>, at: u64) -> bool {
    image.functions().containing(Svma(at)).is_some_and(|f| f.start == Svma(at))
}

/// Is `range` no function but a part of one, split off by the compiler? Then its unwind rules do not
/// begin with the stack as a call leaves it.
pub fn is_fragment(image: &Image<'_>, range: &Range<Svma>) -> bool {
    match image.cfa_offset_from_rsp(range.start) {
        CfaAt::RspPlus(offset) => offset != 8,
        CfaAt::Other => true,
        CfaAt::Unknown => false,
    }
}

/// Ranges that belong to the function although nothing names them: pieces with an unwind entry of
/// their own and no symbol which are jumped to with the frame standing or past their start, or
/// which jump back into the function's middle.
pub fn unnamed_parts(image: &Image<'_>, flow: &Flow) -> Vec<Range<Svma>> {
    let mut parts: Vec<Range<Svma>> = Vec::new();
    for branch in flow.branches.iter().filter(|b| !flow.contains(b.to)) {
        let target = Svma(branch.to);
        let named = image.functions().containing(target).is_some_and(|f| f.linkage.is_some());
        if named || parts.iter().any(|p| p.contains(&target)) {
            continue;
        }
        let Some(fde) = image.fde(target).filter(|_| !is_stub(image, target)) else { continue };
        let framed = match image.cfa_offset_from_rsp(Svma(branch.from)) {
            CfaAt::RspPlus(offset) => offset != 8,
            CfaAt::Other => true,
            CfaAt::Unknown => false,
        };
        if framed || target != fde.range.start || comes_back(image, flow, &fde.range) {
            parts.push(fde.range);
        }
    }
    parts
}

/// Is `at` a linkage table's stub, `jmp [rip + slot]`? One unwind entry covers the whole table.
fn is_stub(image: &Image<'_>, at: Svma) -> bool {
    let mut insn = sweep::one(image, at);
    if insn.is_some_and(|i| is_landing_marker(&i)) {
        insn = sweep::one(image, at.plus(4));
    }
    insn.is_some_and(|i| tables::is_indirect_jump(&i) && i.is_ip_rel_memory_operand())
}

fn comes_back(image: &Image<'_>, flow: &Flow, part: &Range<Svma>) -> bool {
    let Some(swept) = sweep::linear(image, std::slice::from_ref(part)) else { return false };
    swept.insns.iter().any(|insn| {
        let to = insn.near_branch_target();
        is_jump(insn) && flow.contains(to) && !flow.is_entry(to)
    })
}
