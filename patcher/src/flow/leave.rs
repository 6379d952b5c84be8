//! Exits of a function: returns, tail jumps, and jumps that only look like one.

use std::cell::OnceCell;
use std::ops::Range;

use crate::addr::Svma;
use crate::image::{CfaAt, Fde, Image};
use crate::isa::{CFA_AT_ENTRY, Calls, Control, Insn, Shape, after_leading_no_op, jump_source};

use super::continued::is_as_at_entry;
use super::exit::{Leave, LeaveKind};
use super::graph::Flow;
use super::height::Heights;
use super::module::ModuleContext;
use super::sweep;

/// True if the stack at each return of the function is as at its entry. The function then returns
/// to its caller. Other functions push the address that they return to. An unknown stack counts as
/// different. True for a function without returns.
pub fn returns_to_caller(image: &Image<'_>, flow: &Flow) -> bool {
    let stack = Stack::of(flow);
    let mut returns = flow
        .leaves
        .iter()
        .filter(|leave| leave.kind == LeaveKind::Return);
    returns.all(|leave| match image.cfa_from_stack_pointer(leave.at) {
        CfaAt::StackPointerPlus(offset) => offset == CFA_AT_ENTRY,
        CfaAt::Other => false,
        CfaAt::Unknown => {
            let index = flow.index_of(leave.at.0);
            index.and_then(|index| stack.is_as_at_entry(index)) == Some(true)
        }
    })
}

/// Every exit of `flow` at a reachable instruction, ascending.
pub fn all(image: &Image<'_>, flow: &Flow) -> Vec<Leave> {
    let mut leaves = Vec::new();
    let stack = Stack::of(flow);
    for (index, insn) in flow.insns.iter().enumerate() {
        if !flow.is_live(insn.at()) {
            continue;
        }
        let kind = match insn.control() {
            Control::Return => Some(LeaveKind::Return),
            Control::ConditionalJump | Control::Jump => direct(image, flow, insn),
            Control::IndirectJump if insn.is_indirect_jump() => {
                indirect(image, flow, index, || stack.is_as_at_entry(index))
            }
            _ => None,
        };
        let at = Svma(insn.at());
        let certain = flow.is_certain(insn.at());
        let kind = kind.map(|kind| if certain { kind } else { LeaveKind::Doubtful });
        leaves.extend(kind.map(|kind| Leave { at, kind }));
        if falls_out(image, flow, insn) {
            let at = Svma(insn.end());
            leaves.push(Leave {
                at,
                kind: LeaveKind::FallsThrough,
            });
        }
    }
    // If instructions overlap, one may end after the next begins.
    leaves.sort_by_key(|leave| leave.at);
    leaves
}

/// The stack pointer of a function, derived from its instructions.
struct Stack<'f> {
    flow: &'f Flow,
    /// Heights that hold whatever calls do to the stack pointer.
    sure: OnceCell<Heights>,
    /// Heights that hold if calls preserve the stack pointer.
    usual: OnceCell<Heights>,
}

impl<'f> Stack<'f> {
    fn of(flow: &'f Flow) -> Self {
        Self {
            flow,
            sure: OnceCell::new(),
            usual: OnceCell::new(),
        }
    }

    /// True if the stack before the instruction at `index` is as at the entry. `None` if that is
    /// not known.
    ///
    /// Calls are not assumed to preserve the stack pointer. But if that assumption restores both
    /// the stack pointer and the caller's frame pointer of the entry, it is correct.
    fn is_as_at_entry(&self, index: usize) -> Option<bool> {
        let heights = |calls| Heights::of(self.flow, calls);
        let sure = self.sure.get_or_init(|| heights(Calls::MayMove));
        let known = sure.before(index).map(|height| height == 0);
        known.or_else(|| {
            let usual = self.usual.get_or_init(|| heights(Calls::Keep));
            is_as_at_entry(usual, index).then_some(true)
        })
    }
}

fn direct(image: &Image<'_>, flow: &Flow, insn: &Insn) -> Option<LeaveKind> {
    let target = insn.target();
    if flow.contains(target) {
        return None;
    }
    let tail = match image.cfa_from_stack_pointer(Svma(insn.at())) {
        CfaAt::StackPointerPlus(CFA_AT_ENTRY) => true,
        CfaAt::StackPointerPlus(_) | CfaAt::Other => false,
        CfaAt::Unknown => starts_function(image, target) || is_stub(image, Svma(target)),
    };
    Some(if tail {
        let conditional = insn.control() == Control::ConditionalJump;
        LeaveKind::Tail {
            target: Svma(target),
            conditional,
        }
    } else {
        LeaveKind::Astray
    })
}

fn indirect(
    image: &Image<'_>,
    flow: &Flow,
    index: usize,
    is_as_at_entry: impl Fn() -> Option<bool>,
) -> Option<LeaveKind> {
    let insn = &flow.insns[index];
    let shape = jump_source(&flow.insns, &flow.branches, index).shape;
    if shape == Shape::Offsets || flow.jumps.is_within(insn.at()) {
        return None;
    }
    match image.cfa_from_stack_pointer(Svma(insn.at())) {
        CfaAt::StackPointerPlus(CFA_AT_ENTRY) => {}
        CfaAt::StackPointerPlus(_) | CfaAt::Other => return None,
        CfaAt::Unknown => match is_as_at_entry() {
            Some(true) => {}
            Some(false) => return None,
            None => return Some(LeaveKind::Unclear),
        },
    }
    // With the stack as at the entry, a switch in a leaf function and a tail call look the same. If
    // no label's address is taken, the jump has no target in this function.
    if !flow.has_labels || flow.jumps.is_away(insn.at()) {
        Some(LeaveKind::TailIndirect)
    } else {
        Some(LeaveKind::Unclear)
    }
}

/// True if `insn` is at the end of a range of the function, and control falls through into the next
/// code.
fn falls_out(image: &Image<'_>, flow: &Flow, insn: &Insn) -> bool {
    let end = insn.end();
    goes_on(insn)
        && !flow.contains(end)
        && flow
            .ranges
            .iter()
            .any(|r| r.end.0 <= end && r.contains(&Svma(insn.at())))
        && sweep::one(image, Svma(end)).is_some()
}

/// True if control may fall through at the end of `range`, the code of a function.
pub fn runs_on(image: &Image<'_>, range: &Range<Svma>) -> bool {
    let swept = sweep::linear(image, std::slice::from_ref(range)).filter(|s| s.complete);
    let last = swept.as_ref().and_then(|s| s.insns.last());
    last.is_none_or(|last| last.end() != range.end.0 || goes_on(last))
}

/// True if control may continue after `insn`, the last instruction of a function. A call there does
/// not return.
fn goes_on(insn: &Insn) -> bool {
    !insn.is_call() && !insn.ends_block()
}

/// True if `at` is the first byte of a function.
fn starts_function(image: &Image<'_>, at: u64) -> bool {
    image
        .functions()
        .containing(Svma(at))
        .is_some_and(|f| f.start == Svma(at))
}

/// True if `range` is only a part of a function, and not a function of its own.
///
/// The compiler may have split it off. It may also be the code in the middle of `clone` at which a
/// new thread continues. The unwind rules of such code do not begin with the stack as a call leaves
/// it.
pub fn is_fragment(image: &Image<'_>, range: &Range<Svma>) -> bool {
    let first = first(image, range);
    if image.is_outermost(first) {
        return true;
    }
    match image.cfa_from_stack_pointer(first) {
        CfaAt::StackPointerPlus(offset) => offset != CFA_AT_ENTRY,
        CfaAt::Other => true,
        CfaAt::Unknown => false,
    }
}

/// The address of the first instruction of a part, after an optional leading no-op.
fn first(image: &Image<'_>, part: &Range<Svma>) -> Svma {
    after_leading_no_op(part.start, image.bytes(part.start, 1))
}

/// Ranges that belong to the function although they have no symbol.
///
/// The function jumps to them, and they have an unwind entry of their own. A range counts if its
/// unwind rules cannot be those of a function's entry. It also counts if it jumps back into the
/// function's middle, a jump or an exception leads to its start, and no pointer does. Any other
/// jump with the stack as at the entry is a tail call. This is true even for the middle of another
/// function: the C library's copying functions share code in this way.
pub fn unnamed_parts(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    flow: &Flow,
) -> Vec<Range<Svma>> {
    let mut parts: Vec<Range<Svma>> = Vec::new();
    for branch in flow.branches.iter().filter(|b| !flow.contains(b.to)) {
        let target = Svma(branch.to);
        let named = image
            .functions()
            .containing(target)
            .is_some_and(|f| f.linkage.is_some());
        if named || parts.iter().any(|p| p.contains(&target)) {
            continue;
        }
        let Some(fde) = image.fde(target).filter(|_| !is_stub(image, target)) else {
            continue;
        };
        // The target of a pointer is a function.
        let pointed_at = context.is_taken(fde.range.start);
        if is_fragment(image, &fde.range) || !pointed_at && comes_back(image, flow, &fde) {
            parts.push(fde.range);
        }
    }
    parts
}

/// True if `at` is a stub of a linkage table, which jumps through one of the table's entries. One
/// unwind entry covers the whole table.
fn is_stub(image: &Image<'_>, at: Svma) -> bool {
    let mut insn = sweep::one(image, at);
    if let Some(marker) = insn.filter(Insn::is_landing_marker) {
        insn = sweep::one(image, Svma(marker.end()));
    }
    insn.is_some_and(|i| i.is_indirect_jump() && i.named_word().is_some())
}

/// True if `part` jumps back into the function's middle, and a jump or an exception leads to its
/// start. Two functions written by hand can jump into each other's middle, but not to their starts.
fn comes_back(image: &Image<'_>, flow: &Flow, part: &Fde) -> bool {
    let Some(swept) = sweep::linear(image, std::slice::from_ref(&part.range)) else {
        return false;
    };
    let back = swept.insns.iter().any(|insn| {
        let to = insn.target();
        insn.is_jump() && flow.contains(to) && !flow.is_entry(to)
    });
    let start = first(image, &part.range);
    let lands = |fde: &Fde| image.landing_pads(fde).contains(&start);
    let arrives = |insn: &Insn| insn.is_jump() && insn.target() == start.0;
    back && (flow.is_target(start.0)
        || swept.insns.iter().any(arrives)
        || lands(part)
        || flow
            .ranges
            .iter()
            .filter_map(|r| image.fde(r.start))
            .any(|fde| lands(&fde)))
}
