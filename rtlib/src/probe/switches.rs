//! The probes of a function that switches between stacks in one memory range
//! ([`crate::calls::slices`]): its entry and its exit.
//!
//! The function is entered on the old stack and returns on the new one. If it has started a new
//! stack, it returns 1 at the place of its entry (greenlet's platform/switch_amd64_unix.h).

use crate::arch::stored::RESULT;
use crate::calls::left::Left;
use crate::calls::slices;
use crate::os::foreign::Window;
use crate::os::hash;
use crate::thread::Thread;

/// Words from the slot upwards that identify a waiting stack. They are in the frames of the
/// switch's caller, which nothing else writes to meanwhile.
const LONG: u64 = 96;
/// Words below the frame in which a new stack begins. The new stack shares them with the waiting
/// one.
const SHORT: u64 = 16;

/// The identity of the thread's stack, equal at a function's entry and at its return there:
/// registers are preserved as well. `None` if `slot` is on no known stack.
///
/// # Safety
/// The caller owns the thread and runs on its private stack, at the entry or an exit of the
/// function, with its registers stored.
pub(super) unsafe fn left(thread: *mut Thread, slot: u64) -> Option<Left> {
    // SAFETY: see above; the words are on the stack that the thread runs on.
    unsafe {
        if !(*thread).walker.is_on_stack_of(slot, slot) {
            return None;
        }
        let high = (*thread).walker.stack.high;
        let saved = &(*thread).saved;
        let registers = [slot, saved.fp].into_iter().chain(saved.others);
        let mut all = registers.fold(hash::MULTIPLIER, hash::mix);
        let mut short = all;
        let window = Window::new();
        for index in 0..LONG {
            let Some(word) = window.word(slot + 8 * index, high) else {
                break;
            };
            all = hash::mix(all, word);
            if index < SHORT {
                short = all;
            }
        }
        Some(Left::new(hash::mix(all, LONG), hash::mix(short, SHORT)))
    }
}

/// Handles the entry of the function, on the stack that it leaves: parks the calls of that stack,
/// if its bounds are known.
///
/// # Safety
/// As for [`left`].
pub unsafe fn leave(thread: *mut Thread, slot: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if let Some(left) = left(thread, slot) {
            slices::leave(&raw mut (*thread).calls, left);
        }
    }
}

/// Handles an exit of the function, on the stack that it has switched to: takes back the calls of
/// that stack, if its bounds are known.
///
/// # Safety
/// As for [`left`].
pub unsafe fn arrive(thread: *mut Thread, slot: u64) {
    // SAFETY: see above; the stub has stored the return value there.
    unsafe {
        let may_begin = *((slot - RESULT) as *const u32) != 0;
        if let Some(left) = left(thread, slot) {
            let (calls, ledger) = (&raw mut (*thread).calls, &mut (*thread).ledger);
            slices::arrive(calls, ledger, left, may_begin);
        }
    }
}
