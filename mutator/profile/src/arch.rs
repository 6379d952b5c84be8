//! Code for one processor: the clock of calls. A port adds a module with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::ticks;
