//! From a path to the calling thread's record of it, in the segment that it shares with the command.
//!
//! Nothing here knows of a stack.

pub mod areas;
mod book;
mod paths;
pub mod record;
mod tag;
mod tags;
mod tree;

pub use book::{BYTES, Ledger, Missed};
