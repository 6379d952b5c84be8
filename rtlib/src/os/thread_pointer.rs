//! Which thread is running, as far as its thread pointer and what stands at an offset from that tell.

use core::sync::atomic::Ordering;

use super::parameters::ipath_parameters;
use super::sys;
use crate::arch::thread_pointer;

/// The thread pointer: the first word of the control block, where glibc and musl keep it, else the register, which
/// costs several times as much next to a reading of the clock.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    if ipath_parameters.reads_tp.load(Ordering::Relaxed) != 0 {
        return thread_pointer::register();
    }
    thread_pointer::self_pointer()
}

/// The thread pointer of a thread that is not known yet. A program may have begun with a loader's control blocks, and then
/// have its own without self-pointers, as Go's do: from then on the register tells. `None` where only the kernel
/// could, and it says another.
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

/// Bytes from its thread pointer to where each thread has its id; `None` where that is not known.
#[inline(always)]
pub fn tid_offset() -> Option<u64> {
    u64::try_from(ipath_parameters.tid_offset.load(Ordering::Relaxed)).ok()
}
