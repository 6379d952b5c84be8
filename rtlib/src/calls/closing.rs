//! Activations that end without a return.

use super::activation::{Activation, return_address};
use super::cost;
use super::list::{BOTTOM, Calls, SEPARATOR, is_current, is_group_unchanged, pop, raise};
use super::phases;
use crate::ledger::record;
use crate::os::{foreign, parameters, sys};
use crate::walk::StackRange;

/// Closes, as unwound, the innermost activations of `stack` whose return address is at or below
/// `slot`: an exception or longjmp has left them. Activations of other stacks stay.
///
/// # Safety
/// The list belongs to the caller, and is locked.
pub unsafe fn close_left_behind(calls: *mut Calls, stack: u64, slot: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { close_each(calls, stack, slot, |_, _| {}) };
}

/// Closes activations as [`close_left_behind`] does. Before that, passes the function and slot of
/// each to `note`, except for activations that may have returned unseen.
///
/// # Safety
/// As for [`close_left_behind`].
pub unsafe fn close_each(calls: *mut Calls, stack: u64, slot: u64, mut note: impl FnMut(u32, u64)) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            let prev = (*at).prev;
            if (*at).stack == stack {
                if (*at).slot > slot {
                    break;
                }
                let is_lent = (*at).slot & 1 != 0;
                // Spans of other stacks are not told apart.
                if !is_lent && has_not_returned(at) && !parameters::is_span((*at).function) {
                    note((*at).function, return_address((*at).slot));
                }
                leave(calls, raise(calls, at));
            }
            at = prev;
        }
    }
}

/// Closes, as unwound, the spans of a call that began after `of`, which is the call or a span of
/// it.
///
/// # Safety
/// As for [`close_left_behind`]; `of` is on the list.
pub unsafe fn close_spans(calls: *mut Calls, of: *mut Activation) {
    // SAFETY: guaranteed by the caller; only activations above `of` move.
    unsafe {
        let (slot, stack) = ((*of).slot, (*of).stack);
        let mut at = (*calls).top;
        while at != of {
            let prev = (*at).prev;
            if (*at).slot == slot && (*at).stack == stack {
                leave(calls, raise(calls, at));
            }
            at = prev;
        }
    }
}

/// Closes, as unwound, the innermost activations of `stack` whose return address has been
/// overwritten: after the exception was caught, their caller has made another call.
///
/// # Safety
/// As for [`close_left_behind`], which has been called before. So the remaining return addresses
/// are above the stack pointer.
pub unsafe fn close_overwritten(calls: *mut Calls, stack: u64) {
    // SAFETY: guaranteed by the caller.
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
            if record::return_address(&*(*top).record).is_none_or(|site| site == now) {
                break;
            }
            leave(calls, top);
        }
    }
}

/// Closes, as unwound, the activations on the alternate signal stack if the thread runs at `sp`
/// outside of it: the handlers have been left.
///
/// # Safety
/// As for [`close_left_behind`]; `sp` is on `stack`.
pub unsafe fn close_handlers(calls: *mut Calls, stack: u64, sp: u64) {
    // SAFETY: guaranteed by the caller.
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

/// Closes, as unwound, the activations of `stack` and all others in its memory. Part of that memory
/// counts as another stack if a signal's frame could not be walked.
///
/// # Safety
/// As for [`close_left_behind`].
pub unsafe fn close_within(calls: *mut Calls, stack: u64, memory: StackRange) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        close_where(calls, |activation| {
            activation.stack == stack || memory.holds(activation.slot)
        });
    }
}

/// Closes, as unwound, the activations for which `is_left` returns true.
///
/// # Safety
/// As for [`close_left_behind`].
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
    // SAFETY: guaranteed by the caller.
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

/// True if an activation that was left has certainly not returned. If its function no longer has
/// exits, or if the group that it was lent in has changed, it may have.
///
/// # Safety
/// The activation is valid.
unsafe fn has_not_returned(top: *mut Activation) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        is_current(top)
            && parameters::kind((*top).function).has_exits()
            && ((*top).slot & 1 == 0 || is_group_unchanged(top))
    }
}

/// Closes `top`, the innermost activation, as unwound, and removes it. It is not counted if it may
/// have returned, or if the condition for the call to count is only known at its end. A separator
/// is only removed.
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
        if parameters::is_phase((*top).function) {
            phases::leave(&raw mut (*calls).phase, (*calls).top, &*(*top).record);
        }
    }
}
