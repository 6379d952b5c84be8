//! The counters of transfers of control.

use super::liveness::Free;
use crate::addr::Svma;

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
    /// The instruction is a jump through a table and leads to this address.
    LeadsTo(Svma),
}
