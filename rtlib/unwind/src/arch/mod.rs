//! What the processor decides: its registers, the rules of its frames, its signal frames.
//!
//! Each processor has a folder of its own with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{Regs, Rule, Saved, register, rule, signal_frame, step};
