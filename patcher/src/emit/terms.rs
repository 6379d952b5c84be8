//! Inputs, outputs and errors of trampoline emission.

use std::fmt;

use crate::addr::Avma;
use crate::isa::CodeError;

/// The cells that the hooks of a function call through.
///
/// A cell holds the address of a stub in 8 bytes. It must be within 2 GiB of the trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// The cell of the stub for entries.
    pub entry_cell: Avma,
    /// The cell of the stub for exits by a return.
    pub exit_cell: Avma,
    /// The cell of the stub for exits by a tail call.
    pub tail_cell: Avma,
    /// The cell of the stub for exits by a tail call to a function whose own exit hooks end both
    /// activations.
    pub lend_cell: Avma,
    /// The cell of the stub for points; `None` if there is no such stub.
    pub point_cell: Option<Avma>,
    /// The cells of the stubs for the starts and the ends of spans; `None` if there are none.
    pub span_cells: Option<[Avma; 2]>,
    /// The cells of the stubs for the starts and the ends of timed paths; `None` if there are none.
    pub timed_path_cells: Option<[Avma; 2]>,
    /// The cells for counts; `None` if there is no stub for them.
    pub counts: Option<CountCells>,
    /// The number that the hooks pass to the stub at entries and exits, the function's id. At
    /// points they pass the point's number, at spans the span's, at counts the counter's. Timed
    /// paths have a number as spans do.
    pub id: u32,
}

/// The cells that counts use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountCells {
    /// The cell of the stub, which the hooks call with the counter's number.
    pub stub: Avma,
    /// The cell of the stub for paths, which the hooks call with the address of their row
    /// ([`PathRow`](crate::isa::PathRow)).
    pub paths: Avma,
    /// The cell with the address of the table of slots of activations that are on a path.
    pub slots: Avma,
    /// The cell with the address of the table of banks ([`CountIn`](crate::isa::CountIn)). `None` if
    /// all hooks must call the stub.
    pub table: Option<Avma>,
    /// The number of a counter that is never read. A thread that counts with it gets a bank if one
    /// has no owner.
    pub claim: u32,
}

/// A pair of equivalent program counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcPair {
    /// The address in the original code.
    pub original: Avma,
    /// The address in the trampoline. Execution that continues here does not run a hook twice.
    pub trampoline: Avma,
}

/// Equivalent program counters in a copy that has spilled a register.
///
/// To move a thread to the original code, set the register to the word at `saved_at` bytes from the
/// stack pointer. If that is at the stack pointer, raise the latter by
/// [`LOWERED`](crate::isa::LOWERED) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankedPc {
    /// The program counters.
    pub pcs: PcPair,
    /// The number of the register, as encoded in instructions.
    pub register: u8,
    /// The distance from the stack pointer to its value, in bytes.
    pub saved_at: i32,
}

/// Reasons why a trampoline cannot be emitted at the given address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The displacement of an instruction that ends at `from` cannot reach `to`.
    OutOfReach {
        /// The address that the displacement is relative to.
        from: Avma,
        /// The address that the displacement should reach.
        to: Avma,
    },
    /// The jump at `at` cannot encode the address of the stepping stone, or there is no stone.
    NotSpelled {
        /// The jump's address.
        at: Avma,
    },
    /// A point, a span or a count is wanted at the instruction at `at`, but [`Hooks`] has no stub
    /// for it.
    NoPointStub {
        /// The instruction's original address.
        at: Avma,
    },
    /// The instruction at `at` has an operand that is too far away, and no other form.
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
                    "emit trampoline: the punned jump at {at} cannot reach it"
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

/// The labels of the instructions in the copies of a region, in the order of the instructions.
pub(super) struct Labels {
    pub(super) banked: Vec<usize>,
    pub(super) shared: Vec<usize>,
}
