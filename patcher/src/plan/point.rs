//! Probe points, and the tactics that make them available.

use std::fmt;

use crate::addr::Svma;
use crate::flow::{Leave, LeaveKind};
use crate::inside::{Counter, PathStep, SpanStep, Transfer};

/// The event that a hook reports when control passes a probe point.
///
/// Hooks at the same instruction run in the order of this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// An activation of the function begins.
    Entry,
    /// Control reaches the instruction, by falling through or by a jump. The number is the stub's
    /// argument.
    Point(u32),
    /// A span begins or ends.
    Span(SpanStep),
    /// A transfer of control is counted.
    Count(Counter),
    /// A path inside the function begins, goes on, or ends.
    Path(PathStep),
    /// Control continues in the copy of the region with this number. The instruction is a header of
    /// the region.
    Enter(u32),
    /// The activation ends by a return.
    Exit,
    /// The activation ends by a tail call: the callee returns to the caller.
    ///
    /// It names the callee if the hook may leave it to the callee's exits to end both activations
    /// ([`FunctionPlan::lend_to`](super::FunctionPlan::lend_to)).
    TailExit(Option<Svma>),
}

impl Effect {
    /// True if the effect is the end of an activation.
    pub fn is_exit(self) -> bool {
        matches!(self, Self::Exit | Self::TailExit(_))
    }

    /// True if the hook of a conditional jump runs only if the jump is taken.
    pub fn is_if_taken(self) -> bool {
        self.is_exit() || self.transfer() == Some(Transfer::Taken)
    }

    /// True if the hook of a conditional jump runs only if the jump is not taken.
    pub fn is_if_not_taken(self) -> bool {
        self.transfer() == Some(Transfer::NotTaken)
    }

    /// The address to which the jump through a table must lead for the hook to run.
    pub(crate) fn target(self) -> Option<Svma> {
        match self.transfer() {
            Some(Transfer::LeadsTo(target)) => Some(target),
            _ => None,
        }
    }

    /// True if the hook may overwrite the flags.
    pub(crate) fn has_free_flags(self) -> bool {
        match self {
            Self::Count(counter) => counter.free.flags,
            Self::Path(step) => step.free.flags,
            _ => false,
        }
    }

    /// The transfers of control that are counted, followed or timed.
    fn transfer(self) -> Option<Transfer> {
        match self {
            Self::Count(counter) => Some(counter.transfer),
            Self::Path(step) => Some(step.transfer),
            Self::Span(step) => Some(step.transfer),
            _ => None,
        }
    }

    /// True if the hook runs at an instruction inside the activation, where the red zone is live.
    pub fn is_inside(self) -> bool {
        !matches!(self, Self::Entry | Self::Exit | Self::TailExit(_))
    }
}

/// An instruction before which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbePoint {
    /// The instruction's address.
    pub at: Svma,
    /// The event that the hook reports.
    pub effect: Effect,
}

impl ProbePoint {
    /// The probe point at `leave`, where an activation ends.
    pub(super) fn of_leave(leave: &Leave) -> Self {
        Self {
            at: leave.at,
            effect: match leave.kind {
                LeaveKind::Tail { target, .. } => Effect::TailExit(Some(target)),
                LeaveKind::FallsThrough => Effect::TailExit(Some(leave.at)),
                LeaveKind::TailIndirect => Effect::TailExit(None),
                LeaveKind::Return
                | LeaveKind::Unclear
                | LeaveKind::Doubtful
                | LeaveKind::Astray => Effect::Exit,
            },
        }
    }
}

/// A method to divert control to a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tactic {
    /// Five bytes of whole instructions are replaced by a jump.
    Window,
    /// The instruction and the padding after it are replaced by a jump.
    Padding,
    /// A near jump gets a new displacement.
    Retarget,
    /// Two bytes are replaced by a short jump. It leads to a long jump that is placed in nearby
    /// padding, or in unused bytes of another site's window.
    Springboard,
    /// One to four bytes are replaced by the start of a jump. The last bytes of its displacement
    /// are the bytes that follow, which stay unchanged. So it can reach only a few addresses.
    Pun,
    /// One byte is replaced by a breakpoint, whose signal handler continues in the trampoline. This
    /// is slow, and used only if allowed.
    Trap,
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "window",
            Self::Padding => "padding",
            Self::Retarget => "retarget",
            Self::Springboard => "springboard",
            Self::Pun => "pun",
            Self::Trap => "trap",
        })
    }
}

/// The probe points wanted of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// The function's entry.
    pub entry: bool,
    /// All exits of the function.
    pub exits: bool,
}

/// Limits that the process to be patched imposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// True if the process has room at the addresses that punned jumps can reach.
    pub puns: bool,
    /// True if calls may be moved. A moved call is a push and a jump, so its return faults if a
    /// user shadow stack is on (Documentation/arch/x86/shstk.rst).
    pub moved_calls: bool,
}

impl Allowed {
    /// The limits of an ordinary process: none.
    pub const ALL: Self = Self {
        puns: true,
        moved_calls: true,
    };
}
