//! What stubs and drivers agree on.

use core::ptr;

use crate::thread::Thread;

/// What a stub does next where its own code could not record a call, besides the slow path with a
/// thread: try again, or nothing.
pub const AGAIN: *mut Thread = ptr::null_mut();
/// See [`AGAIN`].
pub const DONE: *mut Thread = ptr::without_provenance_mut(1);
/// Added to a thread: record the call as its walker's `found` tells.
pub const FOUND: usize = 2;
