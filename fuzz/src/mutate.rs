//! Ways to change an input.

mod bytes;
mod elf;
mod json;

pub use bytes::bytes;
pub use elf::elf;
pub use json::json;
