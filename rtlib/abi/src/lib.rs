//! Layouts shared by the injected runtime and the `ipath` command: the segment, which both map, and
//! the parameters, which the command writes into the runtime's image before the first probe
//! executes.
//!
//! Every type is `repr(C)`, consists of plain integers or atomics, and has no padding. A change to
//! any of them changes [`ABI_VERSION`]. docs/internals/segment.md describes the whole.
#![no_std]
#![forbid(unsafe_code)]

pub mod apart;
pub mod arch;
pub mod cause;
pub mod count;
pub mod counter;
pub mod filter;
pub mod image;
pub mod path;
pub mod point;
pub mod probe;
pub mod schema;
pub mod segment;
pub mod shortage;
pub mod single;
pub mod site;
pub mod value;

/// Version of every layout in this crate, of the session document, and of the interface between
/// trampolines and stubs. The command refuses sessions of other versions. It accepts another build
/// with the same version: the session document contains the addresses in its runtime.
pub const ABI_VERSION: u32 = 38;

/// Page size in bytes.
pub const PAGE: u64 = 4096;

/// Number of rows of the probe table.
pub const MAX_FUNCTIONS: usize = 16384;
/// Number of the last row of the probe table. The runtime uses it to measure the cost of its
/// probes.
pub const TRIAL: u32 = MAX_FUNCTIONS as u32 - 1;
/// Maximum number of functions of a session, including removed ones.
pub const MOST_FUNCTIONS: usize = TRIAL as usize;

/// Maximum number of live threads that record. Calls on further threads count as missed.
pub const MAX_THREADS: usize = 8192;
