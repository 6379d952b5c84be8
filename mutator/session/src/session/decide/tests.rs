//! Decisions about sessions that are values: no process is looked at.

mod additions;
mod program;
mod removals;
mod turns;
