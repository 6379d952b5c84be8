//! Properties of the processor and of Linux on it that the runtime and the command share.
//!
//! Each processor has its own folder, with the same names. Processors without a folder use
//! `unported`, which `--cfg ipath_unported` selects on every processor.

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
mod unported;
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
mod x86_64;

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
pub use unported::{registers, signal_frame, stack};
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
pub use x86_64::{registers, signal_frame, stack};
