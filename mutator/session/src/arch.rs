//! Code for one processor: instructions that sessions find in programs or write into them. A port
//! adds a folder with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    fence, forking, is_thread_pointer_readable, loader_call, signal_frame, stack_switch,
};
