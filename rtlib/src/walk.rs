//! The walk over a thread's stack, from the entry of a probed function to the root: the return address stands
//! on top of the stack, so the canonical frame address (CFA) is right above it and the function's own unwind rules are never
//! needed.
//!
//! A walk by rules knows the stack pointer and fp only, and takes its rules from the cache (`by_rules.rs`). The
//! full walk tracks every callee-saved register and evaluates the unwind tables afresh (`full.rs`).

mod bounds;
mod buffers;
mod by_rules;
mod cut;
mod fold;
mod frame;
mod full;
pub mod memo;
mod outcome;
mod path;
mod slowly;
mod walker;

pub use frame::{Frame, Stack, StackRange, is_stopped};
pub use outcome::Walk;
pub use path::Path;
pub use walker::{BYTES, TABLE, Walker};
