//! x86-64.

pub mod signal_frame;
pub mod stack;
