//! Activations that end without a return.

use super::activation::{Activation, return_address};
use super::cost;
use super::list::{BOTTOM, Calls, SEPARATOR, is_current, pop, raise};
use crate::ledger::record;
use crate::os::{foreign, parameters, sys};
use crate::walk::StackRange;

/// Closes, as unwound, the innermost activations of `stack` whose return address is at or below
/// `slot`: an exception or longjmp has left them. Activations of other stacks stay.
///
/// # Safety
/// The list is the caller's, and locked.
pub unsafe fn close_left_behind(calls: *mut Calls, stack: u64, slot: u64) {
    // SAFETY: the caller's promise.
    unsafe { close_each(calls, stack, slot, |_, _| {}) };
}

/// Closes activations as [`close_left_behind`] does. Before that, passes the function and slot of
/// each to `note`, except for activations that may have returned unseen.
///
/// # Safety
/// As for [`close_left_behind`].
pub unsafe fn close_each(calls: *mut Calls, stack: u64, slot: u64, mut note: impl FnMut(u32, u64)) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            let prev = (*at).prev;
            if (*at).stack == stack {
                if (*at).slot > slot {
                    break;
                }
                let is_lent = (*at).slot & 1 != 0;
                if !is_lent && has_not_returned(at) {
                    note((*at).function, return_address((*at).slot));
                }
                leave(calls, raise(calls, at));
            }
            at = prev;
        }
    }
}

/// Closes, as unwound, the innermost activations of `stack` whose return address has been
/// overwritten: what caught the exception has called something else from where they were called.
///
/// # Safety
/// As for [`close_left_behind`], after which it is called: the return addresses left to look at lie
/// above the stack pointer.
pub unsafe fn close_overwritten(calls: *mut Calls, stack: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let top = (*calls).top;
            if (*top).slot >= SEPARATOR || (*top).stack != stack {
                break;
            }
            let Some(now) =
                foreign::read_array(return_address((*top).slot)).map(u64::from_le_bytes)
            else {
                break;
            };
            if record::call_site(&*(*top).record).is_none_or(|site| site == now) {
                break;
            }
            leave(calls, top);
        }
    }
}

/// Closes, as unwound, the activations on the alternate signal stack where the thread goes on at `sp`,
/// outside it: the handlers there have been left.
///
/// # Safety
/// As for [`close_left_behind`]; `sp` is on `stack`.
pub unsafe fn close_handlers(calls: *mut Calls, stack: u64, sp: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let top = (*calls).top;
        if (*top).slot == BOTTOM || (*top).stack == stack {
            return;
        }
        let mut alternate = sys::AlternateStack::NONE;
        sys::alternate_stack(&raw mut alternate);
        let is_alternate = |at: u64| at.wrapping_sub(alternate.low) < alternate.size;
        if is_alternate(sp) {
            return;
        }
        close_where(calls, |activation| is_alternate(activation.slot));
    }
}

/// Closes, as unwound, the activations of `stack` and all others in the memory that it is in: there is more
/// than one stack in that where a signal's frame could not be walked over.
///
/// # Safety
/// As for [`close_left_behind`].
pub unsafe fn close_within(calls: *mut Calls, stack: u64, memory: StackRange) {
    // SAFETY: the caller's promise.
    unsafe {
        close_where(calls, |activation| {
            activation.stack == stack || memory.holds(activation.slot)
        });
    }
}

unsafe fn close_where(calls: *mut Calls, is_left: impl Fn(&Activation) -> bool) {
    // SAFETY: the list ends at the bottom.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            let prev = (*at).prev;
            if is_left(&*at) {
                leave(calls, raise(calls, at));
            }
            at = prev;
        }
    }
}

/// Closes every activation as unwound.
///
/// # Safety
/// As for [`close_left_behind`].
pub unsafe fn close_all(calls: *mut Calls) {
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let top = (*calls).top;
            if (*top).slot == BOTTOM {
                break;
            }
            leave(calls, top);
        }
    }
}

/// Whether an activation that is left cannot have returned: where its function has no exits any more, it may have.
///
/// # Safety
/// The activation is valid.
unsafe fn has_not_returned(top: *mut Activation) -> bool {
    // SAFETY: the caller's promise.
    unsafe { is_current(top) && parameters::kind((*top).function).has_exits() }
}

/// Closes the innermost activation as unwound.
///
/// # Safety
/// As for [`close_left_behind`].
pub unsafe fn leave(calls: *mut Calls, top: *mut Activation) {
    // SAFETY: `top` is the innermost activation and not the bottom.
    unsafe {
        if (*top).slot == SEPARATOR {
            (*calls).top = (*top).prev;
            return;
        }
        if has_not_returned(top) && !cost::is_decided_at_exit(&*(*top).record) {
            record::unwind(&*(*top).record);
        }
        pop(calls, top);
    }
}
