//! Functions that are probed though they are not measured.

use abi::probe::{Children, Kind};
use patcher::plan::Effects;
use serde::{Deserialize, Serialize};

/// What the entry of a function that is not measured tells: as a rule, that calls have ended without a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reaper {
    /// Those below its caller's frame.
    Frames,
    /// Those below the frame that the `jmp_buf` at its first argument belongs to.
    Jump,
    /// Those of the whole stack: the thread ends.
    End,
    /// None: a stack is moved, from the entry to the exits.
    Moves,
    /// None: libraries have come or gone.
    Loads,
    /// None, nor does its entry: its exits end calls that have been lent to it by a tail call.
    Ender,
    /// None: a child may come of it that shares the process's memory.
    Forks,
    /// The same where the flags at its third argument say so.
    Clone,
    /// The same where those that its first argument leads to do.
    Clone3,
    /// None, nor does its entry: children come out of its exits that have a copy of the memory.
    Copies,
    /// None: it has the hooks of points, and those of their function where that is measured with them.
    Carrier,
    /// None: the program may execute another one.
    Execs,
    /// None: the process may end.
    Exits,
    /// None: the process may look for leaks as at its end.
    Checks,
    /// None: another stack comes to the place of the one it has been entered on, from the entry to the exits.
    Switches,
}

impl Reaper {
    /// Which of its probe points are needed.
    pub fn effects(self) -> Effects {
        Effects {
            entry: !matches!(self, Self::Ender | Self::Copies | Self::Carrier),
            exits: matches!(
                self,
                Self::Moves | Self::Switches | Self::Ender | Self::Copies
            ),
        }
    }

    /// True if it is needed where calls are only counted.
    pub fn is_for_counts(self) -> bool {
        self == Self::Loads || self.forks() || self.departs()
    }

    /// True if it is needed only where the ends of calls are seen.
    pub fn tells_of_ends(self) -> bool {
        matches!(
            self,
            Self::Frames | Self::Jump | Self::End | Self::Moves | Self::Switches
        )
    }

    /// True if a child may come of it.
    pub fn forks(self) -> bool {
        matches!(
            self,
            Self::Forks | Self::Clone | Self::Clone3 | Self::Copies
        )
    }

    /// True if the program may be left by it.
    pub fn departs(self) -> bool {
        matches!(self, Self::Execs | Self::Exits | Self::Checks)
    }

    /// As the runtime has it.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Frames => Kind::Frames,
            Self::Jump => Kind::Jump,
            Self::End => Kind::End,
            Self::Moves => Kind::Moves,
            Self::Loads => Kind::Loads,
            // The same hooks see to both.
            Self::Ender | Self::Copies => Kind::Ender,
            Self::Forks | Self::Clone | Self::Clone3 => Kind::Forks,
            Self::Carrier => Kind::Point,
            Self::Execs => Kind::Execs,
            Self::Exits => Kind::Exits,
            Self::Checks => Kind::Checks,
            Self::Switches => Kind::Switches,
        }
    }

    /// Where a child may come of it.
    pub(super) fn children(self) -> Children {
        match self {
            Self::Forks => Children::Always,
            Self::Clone => Children::Clone,
            Self::Clone3 => Children::Clone3,
            _ => Children::Never,
        }
    }
}
