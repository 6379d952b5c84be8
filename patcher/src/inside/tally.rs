//! What copies of code do at transfers of control.

use super::counter::{Counter, Transfer};
use super::liveness::Free;
use super::path_step::PathStep;

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
