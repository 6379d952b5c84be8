//! Fuzzing without a compiler of its own: inputs of a kept corpus are changed at random, and a reader must
//! neither panic on what comes out, nor take more memory or time than it may.
//!
//! Deterministic: a seed and the number of a case name its input. `IPATH_FUZZ_CASES` says how many cases each
//! target runs, `IPATH_FUZZ_SEED` where they begin, `IPATH_FUZZ_INPUT` names a file to be read instead.

pub mod corpus;
pub mod memory;
pub mod mutate;
mod random;
mod run;
mod watch;

pub use random::Random;
pub use run::{Target, run};
