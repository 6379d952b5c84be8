//! Mutations of inputs.

mod bytes;
mod elf;
mod json;
mod segment;

pub use bytes::bytes;
pub use elf::elf;
pub use json::json;
pub use segment::{AREA, HEADER, segment};
