//! Decisions about documents alone, without a process.

mod additions;
mod program;
mod removals;
mod turns;
