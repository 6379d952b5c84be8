//! The walk over a thread's stack, from the entry of a probed function to the root. At the entry
//! the return address is on top of the stack and the canonical frame address (CFA) is right above
//! it. So the function's own unwind rules are never needed.
//!
//! A walk by rules knows only the stack pointer and fp, and uses cached rules (`by_rules.rs`). The
//! full walk tracks every callee-saved register and evaluates the unwind tables each time
//! (`full.rs`).

mod bounds;
mod buffers;
mod by_rules;
mod cut;
pub mod filter;
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
