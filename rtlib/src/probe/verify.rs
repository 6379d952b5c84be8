//! Remembered walks, made again to see that they are right (`IPATH_VERIFY_WALKS`, for tests).

use core::ptr;
use core::sync::atomic::Ordering;

use super::busy;
use super::entry::{find_last, walk};
use crate::arch::abort;
use crate::code::epoch;
use crate::ledger::record;
use crate::os::parameters::{self, ipath_parameters, is_alive};
use crate::thread::{self, Thread};
use crate::walk::memo::InEpoch;

/// Makes the walk again that is remembered for a call, and where it differs ends the program with
/// SIGILL. Then the stub goes on as ever.
///
/// # Safety
/// As for [`super::entry::ipath_remember_walk`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_verify_walk(function: u64, slot: u64, fp: u64) {
    let thread = thread::current();
    if !is_alive() || thread.is_null() {
        return;
    }
    // SAFETY: the stub's promise; `busy` keeps signal handlers on the thread out.
    unsafe {
        if busy::begin(thread, slot).is_err() {
            return;
        }
        // Only from here on does the stack stay the thread's current one, whatever handler comes.
        if (*thread).walker.stack.holds(slot) {
            verify(thread, function as u32, slot, fp);
        }
        busy::end(thread);
    }
}

/// Ends the program where the walk that is remembered for a call is another one when it is made again.
///
/// # Safety
/// The thread is the caller's own, marked busy, and `slot` on the stack that it was last seen on.
pub(super) unsafe fn verify(thread: *mut Thread, function: u32, slot: u64, fp: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        (*thread).walker.entry_fp = fp;
        if is_another_walk(thread, function, slot) {
            abort::abort();
        }
    }
}

/// Whether a walk is remembered for a call, and making it again comes to something else.
unsafe fn is_another_walk(thread: *mut Thread, function: u32, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(epoch) = epoch::current() else {
            return false;
        };
        let key = InEpoch::of(function, epoch);
        let Ok(run) = (*thread).walker.memo.find(key, slot) else {
            return false;
        };
        let (stack, record) = (run.stack, run.record);
        if !walk(thread, function, slot) {
            return true;
        }
        (*thread).walker.fold_last(function);
        let walk = (*thread).walker.last_walk();
        // An unidentified stack is known only by the end of its mapping, which neighbouring
        // mappings can move.
        let is_same_stack = !walk.is_told || walk.stack == stack;
        let known = find_last(thread, function);
        let is_trusted = ipath_parameters.distrust.load(Ordering::Relaxed) == 0;
        // What the function measures has changed, and the epoch has not yet.
        if is_trusted && record::schema(&*record) != parameters::schema_of(function) {
            return false;
        }
        !(is_trusted && is_same_stack && known.is_some_and(|known| ptr::eq(known, record)))
    }
}
