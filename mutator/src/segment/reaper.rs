//! Functions that are probed although they are not measured.

use abi::probe::{Children, Kind};
use patcher::plan::Effects;
use serde::{Deserialize, Serialize};

/// The event that the entry of an unmeasured function reports. For most kinds, it is the end of
/// calls that do not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reaper {
    /// Calls below its caller's frame end.
    Frames,
    /// Calls below the frame of the `jmp_buf` in its first argument end.
    Jump,
    /// All calls of the stack end: the thread exits.
    End,
    /// No calls end. A stack is being moved from the entry to the exits.
    Moves,
    /// No calls end. Libraries were loaded or unloaded.
    Loads,
    /// The entry has no probe. The exits end calls that a tail call has lent to this function.
    Ender,
    /// No calls end. It may create a child that shares the memory of the process.
    Forks,
    /// Like `Forks`, if the flags in its third argument say so.
    Clone,
    /// Like `Forks`, if the flags that its first argument points to say so.
    Clone3,
    /// The entry has no probe. Children with a copy of the memory return from its exits.
    Copies,
    /// No calls end. It carries the hooks of points, and those of their function if that is
    /// measured too.
    Carrier,
    /// No calls end. The program may execute another one.
    Execs,
    /// No calls end. The process may exit.
    Exits,
    /// No calls end. The process may check for leaks as at its exit.
    Checks,
    /// No calls end. From the entry to the exits, another stack replaces the one it was entered on.
    Switches,
    /// None: unwind entries that the program has registered do not hold any longer.
    TakesBack,
}

impl Reaper {
    /// The probe points that it needs.
    pub fn effects(self) -> Effects {
        Effects {
            entry: !matches!(self, Self::Ender | Self::Copies | Self::Carrier),
            exits: matches!(
                self,
                Self::Moves | Self::Switches | Self::Ender | Self::Copies
            ),
        }
    }

    /// True if it is needed in sessions that only count calls.
    pub fn is_for_counts(self) -> bool {
        matches!(self, Self::Loads | Self::TakesBack) || self.forks() || self.departs()
    }

    /// True if it is needed only in sessions that see the ends of calls.
    pub fn tells_of_ends(self) -> bool {
        matches!(
            self,
            Self::Frames | Self::Jump | Self::End | Self::Moves | Self::Switches
        )
    }

    /// True if it may create a child.
    pub fn forks(self) -> bool {
        matches!(
            self,
            Self::Forks | Self::Clone | Self::Clone3 | Self::Copies
        )
    }

    /// True if the program may be left through it.
    pub fn departs(self) -> bool {
        matches!(self, Self::Execs | Self::Exits | Self::Checks)
    }

    /// The runtime's kind for it.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Frames => Kind::Frames,
            Self::Jump => Kind::Jump,
            Self::End => Kind::End,
            Self::Moves => Kind::Moves,
            Self::Loads => Kind::Loads,
            // Both use the same hooks.
            Self::Ender | Self::Copies => Kind::Ender,
            Self::Forks | Self::Clone | Self::Clone3 => Kind::Forks,
            Self::Carrier => Kind::Point,
            Self::Execs => Kind::Execs,
            Self::Exits => Kind::Exits,
            Self::Checks => Kind::Checks,
            Self::Switches => Kind::Switches,
            Self::TakesBack => Kind::TakesBack,
        }
    }

    /// The condition on which it creates a child.
    pub(super) fn children(self) -> Children {
        match self {
            Self::Forks => Children::Always,
            Self::Clone => Children::Clone,
            Self::Clone3 => Children::Clone3,
            _ => Children::Never,
        }
    }
}
