//! Layouts shared by the injected runtime and the `ipath` command: the segment, which both map,
//! and the parameters the command writes into the runtime's image before the first probe fires.
//!
//! Every type is `repr(C)`, holds plain integers or atomics only, and has no padding. A change of
//! any of them changes [`ABI_VERSION`]. docs/segment.md describes the whole.
#![no_std]
#![forbid(unsafe_code)]

pub mod arch;
pub mod cause;
pub mod counter;
pub mod image;
pub mod point;
pub mod probe;
pub mod schema;
pub mod segment;
pub mod shortage;
pub mod value;

/// Version of every layout in this crate, of the session document, and of what trampolines and stubs agree on: a
/// session of another version is refused. One of another build with the same version is not: where its runtime has
/// what, its document tells.
pub const ABI_VERSION: u32 = 28;

/// Page size of the only platform there is, in bytes.
pub const PAGE: u64 = 4096;

/// Rows of the table of probes.
pub const MAX_FUNCTIONS: usize = 16384;
/// The last row is the runtime's own, which it tells by what its probes cost.
pub const TRIAL: u32 = MAX_FUNCTIONS as u32 - 1;
/// Most functions one session can hold, removed ones included.
pub const MOST_FUNCTIONS: usize = TRIAL as usize;

/// Most threads alive at once that record; calls on further ones are counted as missed.
pub const MAX_THREADS: usize = 8192;
