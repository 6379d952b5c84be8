//! Inlined copies of functions as sets of segments: DWARF 5 section 3.3.8.2.
//!
//! A copy has ranges of addresses. Compilers move instructions, so the ranges may have gaps with
//! instructions of other code, and some instructions may be far from the others. The *body* of a
//! copy is what a span measures. Control enters it at one instruction:
//!
//! ```text
//! ranges    the instructions of the copy, by the debug information
//! gap       other instructions without calls and choices: control comes from the body or from
//!           another gap, and goes there
//! dispatch  other code that finds the handler of an exception in the copy
//! pieces    connected parts of ranges and gaps
//! body      the piece at which an execution begins
//! outside   the other pieces. They have no calls and no loops.
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use crate::addr::Svma;

use super::graph::BlockId;

/// An inlined copy of a function, by the debug information of its containing function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinedCopy {
    /// A number that the copies of the same function share.
    pub function: usize,
    /// The addresses of its instructions.
    pub ranges: Vec<Range<Svma>>,
    /// The address at which an execution begins (`DW_AT_entry_pc`). `None` if it is not known.
    pub entry: Option<Svma>,
    /// The addresses of the statements at the declaration of the function. GCC marks the begin of
    /// each execution by such a statement. An address may occur several times.
    pub marks: Vec<Svma>,
    /// The entries of the other copies of the same function.
    pub others: Vec<Svma>,
    /// The source positions in the containing function: the address at which each begins, and a
    /// number for it. Ascending.
    pub positions: Vec<(Svma, u32)>,
}

/// A reason why a copy has no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodiless {
    /// It has no instruction that control can reach.
    Empty,
    /// This address is not in the function.
    Elsewhere(Svma),
    /// This address is in the middle of an instruction.
    Misplaced(Svma),
    /// Control also enters it at this address.
    SecondEntry(Svma),
    /// It is in several pieces, and the debug information does not say where it begins.
    NoEntry,
    /// The begin of its executions at this address is not in its code.
    BeginsElsewhere(Svma),
    /// Control returns from inside to its first instruction, at this address.
    Repeats(Svma),
    /// Executions begin at several places. This is the second one.
    Duplicated(Svma),
    /// The compiler has moved a call or a loop of it, at this address, away from its begin.
    Scattered(Svma),
    /// The code at this address belongs to several copies of the function.
    Shared(Svma),
}

/// The body of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    /// The segments, ascending.
    pub(super) segments: BTreeSet<BlockId>,
    /// The address of its first instruction.
    pub(super) entry: Svma,
    /// The number of instructions in gaps.
    pub(super) gaps: usize,
    /// The number of instructions of the copy that are outside of the body.
    pub(super) outside: usize,
}

impl fmt::Display for Bodiless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("control never reaches its code"),
            Self::Elsewhere(at) => write!(f, "its code at {at} is outside of the function"),
            Self::Misplaced(at) => write!(f, "{at} is in the middle of an instruction"),
            Self::SecondEntry(at) => write!(f, "control also enters its code at {at}"),
            Self::NoEntry => f.write_str(
                "its code is in several pieces, and the debug information does not say where it \
                begins",
            ),
            Self::BeginsElsewhere(at) => write!(f, "its begin at {at} is not in its code"),
            Self::Repeats(at) => {
                write!(
                    f,
                    "control returns to its first instruction at {at} from inside"
                )
            }
            Self::Duplicated(at) => {
                write!(
                    f,
                    "its code has several executions in a row, one of them from {at}"
                )
            }
            Self::Shared(at) => write!(f, "the code at {at} is that of several copies"),
            Self::Scattered(at) => {
                write!(f, "a call or loop of it at {at} is apart from its begin")
            }
        }
    }
}

impl std::error::Error for Bodiless {}
