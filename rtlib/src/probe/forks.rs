//! Children that run in the same memory as their parent, which waits until they end or become another program: vfork(2),
//! and posix_spawn(3) on a stack of its own. They have their parent's FS base and the id that stands there, so that only the
//! kernel tells them apart. What they call is not the program's.
//!
//! From a call that makes one until it has returned, the stub records nothing by itself and each call asks.

use crate::os::{foreign, sys};
use crate::thread::{self, Thread};

/// Has each call ask from now on, in one whose return address is at `slot` and which may make a child. Where the kernel may
/// not be asked children are not told apart. Runs on the private stack.
///
/// # Safety
/// The thread is the caller's, marked busy.
pub unsafe fn begin(thread: *mut Thread, slot: u64) {
    if !sys::may_call() {
        return;
    }
    // SAFETY: the caller's promise; the return address stands there.
    unsafe {
        (*thread).fork = (slot, (slot as *const u64).read());
        (*thread).walker.hold(true);
    }
}

/// Whether each call asks.
///
/// # Safety
/// The place is that of the calling thread, or of its parent, which waits.
#[inline(always)]
pub unsafe fn may_be_child(thread: *mut Thread) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*thread).fork.0 != 0 }
}

/// Whether it is a child that runs.
///
/// # Safety
/// As for [`may_be_child`].
#[inline(always)]
pub unsafe fn is_child(thread: *mut Thread) -> bool {
    // SAFETY: the caller's promise.
    unsafe { may_be_child(thread) && !thread::is_itself(thread) }
}

/// Ends that where a call of the thread, whose return address is at `slot`, shows that the one which may have made a child
/// has returned. Runs on the private stack.
///
/// # Safety
/// The thread is the caller's, marked busy.
pub unsafe fn end_if_returned(thread: *mut Thread, slot: u64) {
    // SAFETY: the caller's promise. The slot may have been on a coroutine's stack, which may be gone.
    unsafe {
        let (at, return_address) = (*thread).fork;
        let is_there = || foreign::read_array(at) == Some(return_address.to_le_bytes());
        if at != 0 && (slot >= at || !is_there()) {
            (*thread).fork.0 = 0;
            (*thread).walker.hold(false);
        }
    }
}
