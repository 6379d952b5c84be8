//! What the processor decides: instructions that the compiler has no words for, and what code looks like.
//!
//! All of it is in the folder of one architecture; another one is another folder.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(all(test, target_arch = "x86_64"))]
pub use x86_64::test_code;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    abort, call, clock, counter, exchange, fence, hook, jump_buffer, likely, prefetch, signals,
    stored, system_call, thread_pointer, vector,
};
