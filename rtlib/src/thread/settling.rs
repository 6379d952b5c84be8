//! Assigns a place to the calling thread on the slow path.

use core::mem::offset_of;

use super::mark::Mark;
use super::place::{NOBODY, Thread, is_same, note_word, word_of};
use super::registry::REGISTRY;
use crate::calls;
use crate::os::parameters;
use crate::os::sys;
use crate::os::thread_pointer::tid_offset;

/// Sets up the whole place for the calling thread, which it was given to, unless this was done
/// before.
///
/// # Safety
/// The place belongs to the caller, which holds no lock. Signals are blocked.
#[inline(always)]
pub unsafe fn settle(thread: *mut Thread) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !is_same(thread) || (*thread).is_unmarked != 0 {
            renew(thread);
        }
    }
}

/// Keeps the memory that the calling thread's place points to readable in a child of fork(2), if
/// the place exists there.
pub fn keep_room(thread: *mut Thread) {
    let mark = thread.wrapping_byte_add(offset_of!(Thread, mark));
    Mark::keep_room(mark.cast::<Mark>().cast_const());
}

/// Sets up the place as [`settle`] does, unless it still belongs to the thread. It may have
/// belonged to another thread before.
#[inline(never)]
unsafe fn renew(thread: *mut Thread) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !(*thread).owner.has_id() && is_still(thread) {
            return;
        }
        let owner = &(*thread).owner;
        let has_id = owner.has_id();
        calls::coroutines::renew(&raw mut (*thread).calls);
        (*thread).walker.renew(owner.kernel_tid == owner.process);
        let has_new_records = (*thread).ledger.renew(owner.kernel_tid);
        // Calls that are remembered without their words are on the stack of the former thread.
        if has_new_records || parameters::is_by_callers() {
            (*thread).walker.memo.forget_all();
        }
        (*thread).meter.renew();
        if !has_id {
            mark(thread);
            if (*thread).is_unmarked != 0 {
                // A value that changes only on a context switch could be another thread's as well.
                (*thread).meter.sources.page.refuse();
            }
            return;
        }
        (*thread).is_unmarked = 0;
        (&raw mut (*thread).tid).write_volatile(owner.tid);
    }
}

/// True if the place at the calling thread's thread pointer belongs to it, not to an earlier thread
/// with the same thread pointer. Otherwise the place is given to it, and must be renewed.
///
/// # Safety
/// As for [`settle`]; the thread's id is not at an offset from its thread pointer.
unsafe fn is_still(thread: *mut Thread) -> bool {
    // SAFETY: the place has no other user: one thread has a thread pointer at a time.
    unsafe {
        if (&raw const (*thread).tid).read_volatile() == NOBODY {
            return false;
        }
        let owner = &raw mut (*thread).owner;
        if sys::may_call() {
            if sys::getpid() != sys::own_pid() {
                // A child that shares the memory runs as the thread that waits for it.
                return true;
            }
            let tid = sys::gettid();
            if (*owner).kernel_tid != tid {
                REGISTRY.lock.lock();
                (*owner).kernel_tid = tid;
                (*owner).process = sys::own_pid();
                if tid_offset().is_none() {
                    (*owner).tid = tid;
                }
                (&raw mut (*thread).tid).write_volatile(NOBODY);
                REGISTRY.lock.unlock();
                return false;
            }
        }
        note_word(thread);
        true
    }
}

/// Makes the calling thread recognize its place by a word that changes when the thread ends, if the
/// kernel allows it.
///
/// # Safety
/// As for [`is_still`].
unsafe fn mark(thread: *mut Thread) {
    // SAFETY: as above; the place is listed under the thread pointer of its owner.
    unsafe {
        (*thread).mark.renew();
        (*thread).is_unmarked = u32::from((*thread).mark.word().is_none() && sys::may_call());
        let word = word_of(thread) as u64;
        (*thread).tid_from_tp = word.wrapping_sub((*thread).owner.tp);
        note_word(thread);
    }
}
