//! The parts that depend on the processor: registers, rules of frames, signal frames.
//!
//! Each processor has its own folder, with the same names. Processors without a folder use
//! `unported`, which `--cfg ipath_unported` selects on every processor.

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
mod unported;
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
mod x86_64;

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
pub use unported::{Regs, Rule, Saved, register, rule, signal_frame, step};
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
pub use x86_64::{Regs, Rule, Saved, register, rule, signal_frame, step};
