//! Which thread is running, as far as its FS base and what stands at an offset from that tell.

use core::sync::atomic::Ordering;

use super::parameters::ipath_parameters;
use super::sys;
use crate::arch::thread_pointer;

/// The FS base: the word at %fs:0, where glibc and musl keep it, else by `rdfsbase`, which costs several times
/// as much next to `rdtsc`.
#[inline(always)]
pub fn fs_base() -> u64 {
    if ipath_parameters.rdfsbase.load(Ordering::Relaxed) != 0 {
        return thread_pointer::register();
    }
    thread_pointer::self_pointer()
}

/// The FS base of a thread that is not known yet. A program may have begun with a loader's control blocks, and then
/// have its own without self-pointers, as Go's do: from then on the register tells. `None` where only the kernel
/// could, and it says another.
#[inline(always)]
pub fn new_fs_base() -> Option<u64> {
    let parameters = &ipath_parameters;
    if parameters.has_rdfsbase.load(Ordering::Relaxed) == 0 {
        let base = fs_base();
        return sys::fs_base()
            .is_none_or(|real| real == base)
            .then_some(base);
    }
    if fs_base() != thread_pointer::register() {
        parameters.tid_offset.store(-1, Ordering::Relaxed);
        parameters.rdfsbase.store(1, Ordering::Relaxed);
    }
    Some(fs_base())
}

/// Bytes from its FS base to where each thread has its id; `None` where that is not known.
#[inline(always)]
pub fn tid_offset() -> Option<u64> {
    u64::try_from(ipath_parameters.tid_offset.load(Ordering::Relaxed)).ok()
}
