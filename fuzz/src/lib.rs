//! Fuzzing without compiler instrumentation. Inputs from a corpus are mutated at random. A reader
//! must not panic on the results, nor exceed limits of memory and time.
//!
//! Deterministic: a seed and a case number determine an input. `IPATH_FUZZ_CASES` sets the number
//! of cases of each target and `IPATH_FUZZ_SEED` the first seed. `IPATH_FUZZ_INPUT` names a file to
//! read instead.

pub mod corpus;
pub mod memory;
pub mod mutate;
mod random;
mod run;
mod watch;

pub use random::Random;
pub use run::{Target, run};
