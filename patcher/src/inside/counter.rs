//! The counters of transfers of control.

use super::liveness::Free;
use super::path_step::PathStep;

/// A counter of transfers of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Counter {
    /// The number of the counter.
    pub number: u32,
    /// The transfers that are counted.
    pub transfer: Transfer,
    /// The registers and flags that the hook may overwrite.
    pub free: Free,
}

/// The transfers of control at an instruction that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transfer {
    /// Control reaches the instruction, by falling through or by a jump.
    Reached,
    /// The instruction is a conditional jump and is taken.
    Taken,
    /// The instruction is a conditional jump and is not taken.
    NotTaken,
}

/// What is done at a transfer of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tally {
    /// It is counted.
    Count(Counter),
    /// It is a step of a path.
    Path(PathStep),
}

impl Tally {
    /// The transfers at which it is done.
    pub fn transfer(self) -> Transfer {
        match self {
            Self::Count(counter) => counter.transfer,
            Self::Path(step) => step.transfer,
        }
    }

    /// The registers and flags that its code may overwrite.
    pub fn free(self) -> Free {
        match self {
            Self::Count(counter) => counter.free,
            Self::Path(step) => step.free,
        }
    }
}
