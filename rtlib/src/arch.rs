//! The parts that depend on the processor: instructions that the compiler cannot generate, and
//! patterns in code.
//!
//! Each processor has its own folder, with the same names. Processors without a folder use
//! `unported`, which `--cfg ipath_unported` selects on every processor.

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
mod unported;
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
mod x86_64;

#[cfg(all(test, not(ipath_unported), target_arch = "x86_64"))]
pub use x86_64::test_code;

#[cfg(any(ipath_unported, not(target_arch = "x86_64")))]
pub use unported::{
    abort, call, clock, counter, exchange, fence, hook, jump_buffer, likely, prefetch, signals,
    stored, system_call, thread_pointer, vector,
};
#[cfg(all(not(ipath_unported), target_arch = "x86_64"))]
pub use x86_64::{
    abort, call, clock, counter, exchange, fence, hook, jump_buffer, likely, prefetch, signals,
    stored, system_call, thread_pointer, vector,
};
