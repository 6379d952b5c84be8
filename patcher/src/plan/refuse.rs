//! Why a probe point is not available.

use std::fmt;

use crate::flow::{Doubt, Flow, Leave, LeaveKind};
use crate::isa::Insn;

/// Why a probe point is not available.
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
    /// Where an indirect jump lands is not known.
    IndirectJump,
    /// Another function begins in the bytes that would be overwritten.
    OverlapsFunction,
    /// The function's symbol is inside an instruction of another function.
    InsideInstruction,
    /// An instruction that would be moved cannot be decoded, or the file has no bytes for it.
    Undecodable,
    /// The symbol is a resolver, run once by the loader, and not the function of that name.
    Ifunc,
    /// An instruction that would be moved works only where it stands, such as `syscall`.
    Immovable,
    /// The bytes belong to a restartable sequence.
    RestartableSequence,
    /// The function jumps back to its own first instruction, and that jump cannot be led past the
    /// entry hook.
    LoopToEntry,
    /// These bytes are a part of some function and no function of their own.
    Fragment,
    /// The function jumps into another one and leaves its frame standing.
    JumpsAstray,
    /// In this process there is no room where a punned jump could lead.
    PunOutOfReach,
    /// The process has no free memory within 2 GiB of the function's module.
    NoNearMemory,
    /// An instruction that would be moved has an operand that it could not reach from there.
    OutOfReach,
    /// Something below the stack pointer, where a hook would push, may be used where the function is
    /// left.
    RedZone,
    /// The kernel maps the code into every process, and it cannot be written to.
    Vdso,
    /// The code is mapped shared: what is written to it would go to its file and to all who map that.
    SharedText,
    /// No instruction of the function begins at the address given.
    NotAnInstruction,
    /// Where the function's caller is, which its path begins with, is not known before that instruction by the stack or frame pointer alone.
    UnknownFrame,
    /// What measures needs the function for itself, to follow the program by it.
    UsedByIpath,
    /// A call would have to be moved, and the process has user shadow stacks, which its return would not agree with.
    ShadowStack,
    /// A thread stays in the bytes that would be overwritten.
    Occupied,
    /// The entry is in, and has bytes that the exits would need.
    ExitsOverlapEntry,
    /// Another tool has changed the code: a debugger by a breakpoint, or the kernel by a uprobe.
    TextChanged,
    /// The code has jumps of the session that the process's parent had at the fork.
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

/// Why an exit has no single instruction that a hook could stand before.
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

/// May something below the stack pointer be read where the function is left? A hook there pushes.
/// After a return or tail call nothing of use is there (psABI 3.2.2). But a jump may take its
/// target from there, and what runs on into the next symbol may be one function with it.
fn needs_red_zone(flow: &Flow, leave: &Leave) -> bool {
    match leave.kind {
        LeaveKind::FallsThrough => flow.insns.iter().any(Insn::is_below_stack_pointer),
        _ => flow
            .index_of(leave.at.0)
            .is_some_and(|index| flow.insns[index].is_below_stack_pointer()),
    }
}
