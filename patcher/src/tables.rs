//! Tables in a file that describe its code: unwind entries, landing pads, linkage stubs, Go's
//! functions.

mod go_text;
mod lsda;
mod pclntab;
mod plt;
mod unwind;

pub(crate) use lsda::{exception_sites, landing_pads};
pub(crate) use pclntab::{GoFunction, Pclntab};
pub(crate) use plt::Plt;
pub(crate) use unwind::Unwind;
pub use unwind::{CfaAt, Fde, Frames};
