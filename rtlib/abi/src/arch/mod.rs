//! Properties of the processor and of Linux on it that the runtime and the command share.
//!
//! Each processor has a folder of its own with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{registers, signal_frame, stack};
