//! x86-64.

pub mod abort;
pub mod call;
pub mod clock;
pub mod counter;
pub mod exchange;
pub mod fence;
#[cfg(ipath_image)]
mod freestanding;
pub mod hook;
pub mod jump_buffer;
pub mod likely;
pub mod prefetch;
#[cfg(ipath_image)]
mod quick;
pub mod signals;
pub mod stored;
#[cfg(ipath_image)]
mod stubs;
pub mod system_call;
#[cfg(test)]
pub mod test_code;
pub mod thread_pointer;
#[cfg(ipath_image)]
mod trap;
pub mod vector;
