//! The function by which stacks take turns in one memory ([`crate::calls::slices`]): its probe at the entry and the exit.
//!
//! It is entered on the stack that is left, and returns on the one that goes on, or with 1 where it was entered, on a
//! new one (greenlet's platform/switch_amd64_unix.h).

use crate::calls::left::Left;
use crate::calls::slices;
use crate::os::foreign::Window;
use crate::os::hash;
use crate::thread::Thread;

/// Words from the slot up by which a stack that waits is known. They are within the frames of whoever calls the switch, which nobody else
/// writes to meanwhile.
const LONG: u64 = 96;
/// Those below the frame that a new stack begins in, which it shares with the one that waits.
const SHORT: u64 = 16;
/// Bytes from where the stub has stored the return value up to the slot.
const RESULT: u64 = 8;

/// What stands on the stack when the function has been entered, and again when it returns there: it keeps registers as well.
///
/// # Safety
/// The thread is the caller's, on its private stack, at the entry or an exit of the function.
unsafe fn left(thread: *mut Thread, slot: u64) -> Option<Left> {
    // SAFETY: the caller's promise; the words are of the stack that the thread is on.
    unsafe {
        if !(*thread).walker.is_on_stack_of(slot, slot) {
            return None;
        }
        let high = (*thread).walker.stack.high;
        let saved = &(*thread).saved;
        let [r12, r13, r14, r15] = saved.r12_15;
        let registers = [slot, saved.rbx, saved.rbp, r12, r13, r14, r15];
        let mut all = registers.into_iter().fold(hash::MULTIPLIER, hash::mix);
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

/// What its entry does.
///
/// # Safety
/// As for [`left`].
pub unsafe fn leave(thread: *mut Thread, slot: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(left) = left(thread, slot) {
            slices::leave(&raw mut (*thread).calls, left);
        }
    }
}

/// What its exit does.
///
/// # Safety
/// As for [`left`].
pub unsafe fn arrive(thread: *mut Thread, slot: u64) {
    // SAFETY: the caller's promise; the stub has stored the return value there.
    unsafe {
        let may_begin = *((slot - RESULT) as *const u32) != 0;
        if let Some(left) = left(thread, slot) {
            let (calls, ledger) = (&raw mut (*thread).calls, &mut (*thread).ledger);
            slices::arrive(calls, ledger, left, may_begin);
        }
    }
}
