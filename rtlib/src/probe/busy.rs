//! Who is recording a call: a probe that fires meanwhile comes from a signal handler on top of that.

use crate::os::sys;
use crate::thread::Thread;

/// Marks the thread as recording the call whose return address is at `slot`; 0 ends it.
///
/// # Safety
/// The thread is the caller's.
#[inline(always)]
pub unsafe fn set(thread: *mut Thread, slot: u64) {
    // SAFETY: the caller's promise. Volatile: a signal handler reads it.
    unsafe { (&raw mut (*thread).busy).write_volatile(slot) };
}

/// Whether the thread is in the middle of recording another call: then this one comes from a
/// signal handler on top of it.
///
/// # Safety
/// The thread is the caller's.
#[inline(always)]
pub unsafe fn is_set(thread: *mut Thread, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let busy = (&raw const (*thread).busy).read_volatile();
        busy != 0 && !is_left(thread, busy, slot)
    }
}

/// Less than what the kernel puts on a stack for a signal: the red zone, 512 bytes of x87 and xmm
/// registers, and a ucontext.
const SIGNAL_FRAME: u64 = 1024;

/// Whether a mark was left by a jump out of a signal handler that had interrupted the recording of a
/// call: a handler on top of that has its own calls deeper in the same stack, or on the alternate one.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn is_left(thread: *mut Thread, busy: u64, slot: u64) -> bool {
    // SAFETY: the thread is the caller's. What it was last seen on may be the alternate stack still.
    let is_same = unsafe { (*thread).walker.is_one_stack(busy, slot) };
    let is_deeper = busy >= slot + SIGNAL_FRAME;
    // SAFETY: as above; a handler on top of this that does the same stores the same.
    let (low, size) = unsafe {
        sys::alternate_stack(&raw mut (*thread).alternate);
        ((*thread).alternate.low, (*thread).alternate.size)
    };
    let is_alternate = |at: u64| at.wrapping_sub(low) < size;
    match (is_alternate(busy), is_alternate(slot)) {
        (true, true) => !is_deeper,
        (true, false) => true,
        (false, true) => false,
        (false, false) => !is_deeper && (is_same || busy.abs_diff(slot) < SIGNAL_FRAME),
    }
}
