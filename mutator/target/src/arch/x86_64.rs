//! x86-64.

pub mod code;
mod registers;
pub mod signal_frame;
pub mod system_call;

pub use registers::Registers;
