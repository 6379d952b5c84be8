//! Probe points, and the tactics that make them available.

use std::fmt;

use crate::addr::Svma;
use crate::flow::{Leave, LeaveKind};

/// What happens when control passes a probe point. Where several meet at one instruction, their hooks
/// run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// An activation of the function begins.
    Entry,
    /// Control comes to the instruction, running on to it or jumping. The number is what the stub is
    /// told.
    Point(u32),
    /// The activation ends by a return.
    Exit,
    /// It ends by a tail call: what is called returns to the caller. Where the hook may take that for the end of both, what
    /// is called ([`FunctionPlan::lend_to`](super::FunctionPlan::lend_to)).
    TailExit(Option<Svma>),
}

impl Effect {
    /// Does the activation end?
    pub fn is_exit(self) -> bool {
        matches!(self, Self::Exit | Self::TailExit(_))
    }
}

/// An instruction before which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbePoint {
    /// The instruction's address.
    pub at: Svma,
    /// What the hook is told.
    pub effect: Effect,
}

impl ProbePoint {
    /// The end of an activation.
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

/// How control is led to a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tactic {
    /// Five bytes of whole instructions become a jump.
    Window,
    /// The instruction and the padding after it become a jump.
    Padding,
    /// A near jump gets another displacement.
    Retarget,
    /// Two bytes become a short jump to a jump that is placed in padding close by, or in bytes
    /// that another site's window has left over.
    Springboard,
    /// One to four bytes become the beginning of a jump whose displacement ends with the bytes that
    /// follow and stay. So it leads to one of few addresses.
    Pun,
    /// One byte becomes a breakpoint, whose signal leads on: slow, and only where it was allowed.
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

/// Which probe points are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// The function's entry.
    pub entry: bool,
    /// All its exits.
    pub exits: bool,
}

/// What a process allows that is to be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Has it room where punned jumps could lead?
    pub puns: bool,
    /// May calls be moved? A moved one is a push and a jump: where a user shadow stack is on
    /// (Documentation/arch/x86/shstk.rst) its return faults.
    pub moved_calls: bool,
}

impl Allowed {
    /// What an ordinary process does.
    pub const ALL: Self = Self {
        puns: true,
        moved_calls: true,
    };
}
