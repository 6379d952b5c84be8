//! Go's `copystack`, which moves a goroutine's stack: its probe at the entry and the exit.

use crate::arch::stored::FIRST_ARGUMENT_OF_GO;
use crate::calls::moving;
use crate::os::parameters;
use crate::thread::Thread;

/// The goroutine that a call is about.
///
/// # Safety
/// `slot` is the address of the return address of a call of `copystack`, at its entry.
unsafe fn goroutine(slot: u64) -> u64 {
    // SAFETY: the stub's trampoline has stored the register there.
    unsafe { ((slot - FIRST_ARGUMENT_OF_GO) as *const u64).read() }
}

/// Whether a call must be seen to.
///
/// # Safety
/// As for [`goroutine`].
#[inline(always)]
pub unsafe fn is_known(slot: u64) -> bool {
    // SAFETY: the caller's promise; Go's own code is about to read the goroutine.
    unsafe { moving::is_known(goroutine(slot)) }
}

/// What its entry does.
///
/// # Safety
/// As for [`goroutine`]; the thread is the caller's, on its private stack.
pub unsafe fn begin(thread: *mut Thread, function: u32, slot: u64) {
    // SAFETY: the caller's promise; Go's own code is about to read the goroutine.
    unsafe {
        let calls = &raw mut (*thread).calls;
        moving::begin(calls, goroutine(slot), parameters::generation(function));
    }
}

/// What its exit does.
///
/// # Safety
/// The thread is the caller's, on its private stack, at the end of a call of `copystack`.
pub unsafe fn end(thread: *mut Thread, function: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let (calls, ledger) = (&raw mut (*thread).calls, &mut (*thread).ledger);
        moving::end(calls, ledger, parameters::generation(function));
    }
}
