//! Reasons why a probe point is not available.

use std::fmt;

use crate::flow::{Doubt, Flow, Leave, LeaveKind};
use crate::isa::Insn;

/// A reason why a probe point is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefuseReason {
    /// Control can arrive in the middle of the bytes that would be overwritten.
    BranchIntoWindow,
    /// There are too few bytes before something that must stay.
    TooShort,
    /// A call would return into the middle of the bytes that would be overwritten.
    CallInWindow,
    /// The function's bytes are not instructions from start to end.
    DataInCode,
    /// The targets of an indirect jump are not known.
    IndirectJump,
    /// Another function begins in the bytes that would be overwritten.
    OverlapsFunction,
    /// The function's symbol is inside an instruction of another function, or in the padding before
    /// one.
    InsideInstruction,
    /// An instruction that would be moved cannot be decoded, or the file has no bytes for it.
    Undecodable,
    /// The symbol is a resolver, run once by the loader, and not the function of that name.
    Ifunc,
    /// An instruction that would be moved works only at its original address, such as `syscall`.
    Immovable,
    /// The bytes belong to a restartable sequence.
    RestartableSequence,
    /// The function jumps back to its own first instruction, and that jump cannot be diverted past
    /// the entry hook.
    LoopToEntry,
    /// The function's bytes are part of another function, not a function of their own.
    Fragment,
    /// The function jumps into another function without removing its own frame.
    JumpsAstray,
    /// The process has no room at the addresses that a punned jump could reach.
    PunOutOfReach,
    /// The process has no free memory within 2 GiB of the function's module.
    NoNearMemory,
    /// An instruction that would be moved has an operand that is out of reach from its new address.
    OutOfReach,
    /// The exit may use memory below the stack pointer, which a hook would overwrite by a push.
    RedZone,
    /// The kernel maps the code into every process, and it cannot be written to.
    Vdso,
    /// The code is mapped shared: a write would change the file and every other mapping of it.
    SharedText,
    /// No instruction of the function begins at the address given.
    NotAnInstruction,
    /// The stack pointer or frame pointer alone does not locate the function's caller at the
    /// point's instruction, from which the call path starts.
    UnknownFrame,
    /// ipath itself uses the function to follow the program.
    UsedByIpath,
    /// A call must be moved, but the process has user shadow stacks: its return would fault.
    ShadowStack,
    /// A thread does not leave the bytes that would be overwritten.
    Occupied,
    /// The entry is patched already, in bytes that the exits need.
    ExitsOverlapEntry,
    /// Another tool has changed the code: a debugger by a breakpoint, or the kernel for a uprobe.
    TextChanged,
    /// The code contains jumps from a session in the parent process, inherited by the fork.
    InheritedJumps,
    /// The library has been unloaded since the function was found.
    Unloaded,
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BranchIntoWindow => "branch-into-window",
            Self::TooShort => "too-short",
            Self::CallInWindow => "call-in-window",
            Self::DataInCode => "data-in-code",
            Self::IndirectJump => "indirect-jump",
            Self::OverlapsFunction => "overlaps-function",
            Self::InsideInstruction => "inside-instruction",
            Self::Undecodable => "undecodable",
            Self::Ifunc => "ifunc",
            Self::Immovable => "immovable",
            Self::RestartableSequence => "restartable-sequence",
            Self::LoopToEntry => "loop-to-entry",
            Self::Fragment => "fragment",
            Self::JumpsAstray => "jumps-astray",
            Self::PunOutOfReach => "pun-out-of-reach",
            Self::NoNearMemory => "no-near-memory",
            Self::OutOfReach => "out-of-reach",
            Self::RedZone => "red-zone",
            Self::Vdso => "vdso",
            Self::SharedText => "shared-text",
            Self::NotAnInstruction => "not-an-instruction",
            Self::UnknownFrame => "unknown-frame",
            Self::UsedByIpath => "used-by-ipath",
            Self::ShadowStack => "shadow-stack",
            Self::Occupied => "occupied",
            Self::ExitsOverlapEntry => "exits-overlap-entry",
            Self::TextChanged => "text-changed",
            Self::InheritedJumps => "inherited-jumps",
            Self::Unloaded => "unloaded",
        })
    }
}

impl From<Doubt> for RefuseReason {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::DataInCode => Self::DataInCode,
            Doubt::IndirectJump => Self::IndirectJump,
        }
    }
}

/// The reason why no hook can precede an exit, if there is one.
pub fn unhookable(flow: &Flow, leave: &Leave) -> Option<RefuseReason> {
    match leave.kind {
        LeaveKind::Return
        | LeaveKind::Tail { .. }
        | LeaveKind::TailIndirect
        | LeaveKind::FallsThrough => needs_red_zone(flow, leave).then_some(RefuseReason::RedZone),
        LeaveKind::Doubtful => Some(RefuseReason::DataInCode),
        LeaveKind::Unclear => Some(RefuseReason::IndirectJump),
        LeaveKind::Astray => Some(RefuseReason::JumpsAstray),
    }
}

/// True if the exit may read memory below the stack pointer, where a hook pushes.
///
/// After a return or tail call nothing there is live (psABI 3.2.2). But a jump may read its target
/// from there. Code that falls through into the next symbol may be one function with it.
fn needs_red_zone(flow: &Flow, leave: &Leave) -> bool {
    match leave.kind {
        LeaveKind::FallsThrough => flow.insns.iter().any(Insn::is_below_stack_pointer),
        _ => flow
            .index_of(leave.at.0)
            .is_some_and(|index| flow.insns[index].is_below_stack_pointer()),
    }
}
