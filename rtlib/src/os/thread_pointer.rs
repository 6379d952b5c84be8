//! The identity of the running thread: its thread pointer, and the thread id at an offset from it.

use core::sync::atomic::Ordering;

use super::parameters::ipath_parameters;
use super::sys;
use crate::arch::thread_pointer;

/// The thread pointer: the first word of the control block if glibc or musl keeps it there, else
/// the register. Next to a reading of the clock, reading the register takes several times as long.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    if ipath_parameters.reads_tp.load(Ordering::Relaxed) != 0 {
        return thread_pointer::register();
    }
    thread_pointer::self_pointer()
}

/// The thread pointer of a thread that is not known yet. A program may have started with a loader's
/// control blocks, and later use its own without self-pointers, as Go does. From then on, the
/// register is used. `None` if the register cannot be read and the kernel's value differs.
#[inline(always)]
pub fn new_thread_pointer() -> Option<u64> {
    let parameters = &ipath_parameters;
    if parameters.may_read_tp.load(Ordering::Relaxed) == 0 {
        let base = thread_pointer();
        return sys::thread_pointer()
            .is_none_or(|real| real == base)
            .then_some(base);
    }
    if thread_pointer() != thread_pointer::register() {
        parameters.tid_offset.store(-1, Ordering::Relaxed);
        parameters.reads_tp.store(1, Ordering::Relaxed);
    }
    Some(thread_pointer())
}

/// Bytes from the thread pointer to the thread id; `None` if unknown.
#[inline(always)]
pub fn tid_offset() -> Option<u64> {
    u64::try_from(ipath_parameters.tid_offset.load(Ordering::Relaxed)).ok()
}
