//! What trampolines are made of and lead to, and why one cannot be made.

use std::fmt;

use crate::addr::Avma;
use crate::isa::CodeError;

/// What the hooks of a function call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// An 8-byte cell with the address of the stub for entries, within 2 GiB of the trampoline.
    pub entry_cell: Avma,
    /// The same for exits by a return.
    pub exit_cell: Avma,
    /// The same for exits by a tail call.
    pub tail_cell: Avma,
    /// The same for those of a function whose exits have hooks, too, that end both.
    pub lend_cell: Avma,
    /// The same for points, where there is a stub for them.
    pub point_cell: Option<Avma>,
    /// What the stub is told at entries and exits; at points it is their number.
    pub id: u32,
}

/// A pair of program counters that mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcPair {
    /// In the original code.
    pub original: Avma,
    /// In the trampoline, where execution goes on without running a hook that has run already.
    pub trampoline: Avma,
}

/// Why a trampoline cannot be at the address given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// An instruction at `from` cannot reach `to`.
    OutOfReach {
        /// Where the displacement counts from.
        from: Avma,
        /// What it should name.
        to: Avma,
    },
    /// The jump at `at` cannot lead to the stepping stone given, or none is.
    NotSpelled {
        /// The jump's address.
        at: Avma,
    },
    /// A hook before the instruction at `at` is wanted, and [`Hooks`] name no stub for points.
    NoPointStub {
        /// The instruction's original address.
        at: Avma,
    },
    /// The instruction at `at` has an operand too far away and no other form.
    NoFarForm {
        /// The instruction's original address.
        at: Avma,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfReach { from, to } => {
                write!(f, "emit trampoline: {to} is out of reach of {from}")
            }
            Self::NotSpelled { at } => {
                write!(
                    f,
                    "emit trampoline: the punned jump at {at} cannot lead there"
                )
            }
            Self::NoPointStub { at } => {
                write!(f, "emit trampoline: the point at {at} has no stub to call")
            }
            Self::NoFarForm { at } => {
                write!(f, "emit trampoline: the operand of {at} is out of reach")
            }
        }
    }
}

impl std::error::Error for EmitError {}

impl From<CodeError> for EmitError {
    fn from(error: CodeError) -> Self {
        match error {
            CodeError::OutOfReach { from, to } => Self::OutOfReach { from, to },
            CodeError::NoFarForm { at } => Self::NoFarForm { at },
        }
    }
}
