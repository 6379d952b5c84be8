//! x86-64.

pub mod register;
mod regs;
pub mod rule;
pub mod signal_frame;
mod step;

pub use regs::{Regs, Saved};
pub use rule::Rule;
pub use step::step;
