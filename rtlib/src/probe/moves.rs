//! The probes of Go's `copystack`, which moves a goroutine's stack: at its entry and its exits.

use crate::arch::stored::FIRST_ARGUMENT_OF_GO;
use crate::calls::moving;
use crate::os::parameters;
use crate::thread::Thread;

/// The address of the goroutine whose stack a call of `copystack` moves.
///
/// # Safety
/// `slot` is the address of the return address of a call of `copystack`, at its entry.
unsafe fn goroutine(slot: u64) -> u64 {
    // SAFETY: the stub's trampoline has stored the register there.
    unsafe { ((slot - FIRST_ARGUMENT_OF_GO) as *const u64).read() }
}

/// False if the call of `copystack` can be ignored, because the goroutine has no known calls.
///
/// # Safety
/// As for [`goroutine`].
#[inline(always)]
pub unsafe fn is_known(slot: u64) -> bool {
    // SAFETY: guaranteed by the caller; Go's own code is about to read the goroutine.
    unsafe { moving::is_known(goroutine(slot)) }
}

/// Handles the entry of `copystack`: [`moving::begin`].
///
/// # Safety
/// As for [`goroutine`]. The thread belongs to the caller, which is on its private stack.
pub unsafe fn begin(thread: *mut Thread, function: u32, slot: u64) {
    // SAFETY: guaranteed by the caller; Go's own code is about to read the goroutine.
    unsafe {
        let calls = &raw mut (*thread).calls;
        moving::begin(calls, goroutine(slot), parameters::generation(function));
    }
}

/// Handles an exit of `copystack`: [`moving::end`].
///
/// # Safety
/// The thread belongs to the caller, which is on its private stack, at the end of a call of
/// `copystack`.
pub unsafe fn end(thread: *mut Thread, function: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (calls, ledger) = (&raw mut (*thread).calls, &mut (*thread).ledger);
        moving::end(calls, ledger, parameters::generation(function));
    }
}
