//! What the processor decides: its registers, the rules of its frames, its signal frames.
//!
//! Each processor has a folder of its own with the same names. Without one it has those of `unported`,
//! which `--cfg ipath_unported` selects on every processor.

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
mod unported;
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
mod x86_64;

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
pub use unported::{Regs, Rule, Saved, register, rule, signal_frame, step};
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
pub use x86_64::{Regs, Rule, Saved, register, rule, signal_frame, step};
