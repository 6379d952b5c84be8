//! x86-64.

pub mod registers;
pub mod signal_frame;
pub mod stack;
