//! Values shared by stubs and drivers.

use core::ptr;

use crate::thread::Thread;

/// A stub's next action if its own code could not record a call: try again. A thread instead means
/// the slow path.
pub const AGAIN: *mut Thread = ptr::null_mut();
/// A stub's next action: none.
pub const DONE: *mut Thread = ptr::without_provenance_mut(1);
/// Added to the address of a thread as a stub's next action: record the call with the run `found`
/// of the thread's walker.
pub const FOUND: usize = 2;
