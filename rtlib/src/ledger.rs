//! From a path to the calling thread's record of it, in the segment shared with the command.
//!
//! This layer knows no stack.

pub mod areas;
mod book;
mod paths;
pub mod record;
mod tag;
mod tags;
mod tree;

pub use book::{BYTES, Ledger, Missed};
