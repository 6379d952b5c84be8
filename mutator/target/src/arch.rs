//! Code specific to one processor: the registers of a stopped thread, instruction bytes, and signal
//! frames on the stack. A port adds a folder with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{Registers, code, signal_frame, system_call};
