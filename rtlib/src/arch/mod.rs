//! What the processor decides: instructions that the compiler has no words for, and what code looks like.
//!
//! All of it is in the folder of one architecture; another one is another folder.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    call, clock, counter, fence, prefetch, register, signal_frame, system_call, thread_pointer,
    vector,
};
