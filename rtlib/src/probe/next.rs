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

/// Bytes below the top of a thread's private stack where the slow path has stored xmm0 and those after it.
pub const VECTORS: u64 = 256;
/// Bytes below a call's slot where the stub has stored rdi, the first argument of C's functions.
pub const FIRST_ARGUMENT: u64 = 64;
/// The same of rdx, the third.
pub const THIRD_ARGUMENT: u64 = 48;
/// Like [`FIRST_ARGUMENT`], for r9, the sixth argument. The others are between them.
pub const SIXTH_ARGUMENT: u64 = 24;
/// Bytes below it where the trampoline has stored rax, in which Go's functions have their first argument since
/// 1.17 (its ABIInternal).
pub const FIRST_ARGUMENT_OF_GO: u64 = 8;
