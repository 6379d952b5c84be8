//! x86-64.

pub mod call;
pub mod clock;
pub mod counter;
pub mod fence;
#[cfg(ipath_image)]
mod freestanding;
pub mod prefetch;
pub mod register;
pub mod signal_frame;
pub mod system_call;
pub mod thread_pointer;
pub mod vector;
