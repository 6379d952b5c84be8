//! Verification of cached walks by repeating them (`IPATH_VERIFY_WALKS`, for tests).

use core::ptr;
use core::sync::atomic::Ordering;

use super::busy;
use super::entry::find_last;
use super::remembering::walk;
use crate::arch::abort;
use crate::code::epoch;
use crate::ledger::record;
use crate::os::parameters::{self, ipath_parameters, is_alive};
use crate::thread::{self, Thread};
use crate::walk::filter::ELSEWHERE;
use crate::walk::memo::InEpoch;

/// Repeats the cached walk of a call, and kills the program with SIGILL if the two walks differ.
/// Otherwise the stub continues as usual.
///
/// # Safety
/// As for [`super::entry::ipath_remember_walk`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_verify_walk(function: u64, slot: u64, fp: u64) {
    let thread = thread::current();
    if !is_alive() || thread.is_null() {
        return;
    }
    // SAFETY: guaranteed by the stub; `busy` excludes signal handlers on the thread.
    unsafe {
        if busy::begin(thread, slot).is_err() {
            return;
        }
        // Only from here on do signal handlers not change the thread's current stack.
        if (*thread).walker.stack.holds(slot) {
            verify(thread, function as u32, slot, fp);
        }
        busy::end(thread);
    }
}

/// Kills the program if the cached walk of a call differs from a new one.
///
/// # Safety
/// The thread belongs to the caller and is marked busy. `slot` is on the stack on which it was last
/// seen.
pub(super) unsafe fn verify(thread: *mut Thread, function: u32, slot: u64, fp: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (*thread).walker.entry_fp = fp;
        if is_another_walk(thread, function, slot) {
            abort::abort();
        }
    }
}

/// True if the walk of a call is cached and differs from a new one.
unsafe fn is_another_walk(thread: *mut Thread, function: u32, slot: u64) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(epoch) = epoch::current() else {
            return false;
        };
        let key = InEpoch::of(function, epoch);
        let Ok(run) = (*thread).walker.memo.find(key, slot) else {
            return false;
        };
        let (stack, record) = (run.stack, run.record);
        if stack == ELSEWHERE {
            return false;
        }
        if !walk(thread, function, slot) {
            return true;
        }
        (*thread).walker.fold_last(function);
        let walk = (*thread).walker.last_walk();
        // An unidentified stack is known only by the end of its mapping, which neighboring
        // mappings can move.
        let is_same_stack = !walk.is_told || walk.stack == stack;
        let known = find_last(thread, function);
        let is_trusted = ipath_parameters.distrust.load(Ordering::Relaxed) == 0;
        // The function's measurements have changed, but the epoch not yet.
        if is_trusted && record::schema(&*record) != parameters::schema_of(function) {
            return false;
        }
        !(is_trusted && is_same_stack && known.is_some_and(|known| ptr::eq(known, record)))
    }
}
