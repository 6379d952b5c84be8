//! What happens when a probed function is left.

use core::sync::atomic::Ordering;

use abi::image::FUNCTION_MOVES;
use abi::segment::RecordHead;

use crate::activation::Activation;
use crate::entry::{AGAIN, DONE, flags, is_busy, set_busy};
use crate::foreign;
use crate::moving;
use crate::reap;
use crate::record;
use crate::registry;
use crate::stacks::{self, SEPARATOR};
use crate::state::{ipath_functions, is_alive};
use crate::sys;
use crate::thread::{self, Thread};

/// Ends the activation of `function` whose return address is at `slot` where it is the innermost, at
/// `now`: the thread to take the slow path with, else [`DONE`].
///
/// # Safety
/// Called by the exit stub: `slot` is the address of the return address about to be used.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_fast_exit(function: u64, slot: u64, now: u64) -> *mut Thread {
    if !is_alive() {
        return DONE;
    }
    let thread = thread::current();
    if thread.is_null() {
        return meet();
    }
    // SAFETY: the thread is the caller's own, and `busy` keeps signal handlers on it out.
    unsafe {
        let moves = moves(function);
        let is_empty = match moves {
            true => !moving::is_begun(thread),
            false => (*(*thread).top).slot == u64::MAX && !stacks::have_coroutines(),
        };
        if is_empty || is_busy(thread, slot) {
            return DONE;
        }
        set_busy(thread, slot);
        if moves {
            return thread;
        }
        let top = (*thread).top;
        let is_innermost = (*top).slot == slot
            && u64::from((*top).function) == function
            && thread::is_same_thread(thread);
        if !is_innermost || !end(thread, top, (*top).prev, now, record::try_close) {
            (*thread).now = now;
            return thread;
        }
        set_busy(thread, 0);
        DONE
    }
}

/// Whether a function is one that moves stacks.
#[inline(always)]
fn moves(function: u64) -> bool {
    flags(function) & FUNCTION_MOVES != 0
}

/// Makes a thread known that comes out of a call which another one may have begun.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
fn meet() -> *mut Thread {
    if !stacks::have_coroutines() || !registry::register() {
        return DONE;
    }
    AGAIN
}

/// Ends an activation that is not the innermost, or whose record must grow, or none: the call may have
/// begun before its function was instrumented.
///
/// # Safety
/// Called by the exit stub with what [`ipath_fast_exit`] returned; the stub ends the thread's being busy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_exit(thread: *mut Thread, function: u64, slot: u64) {
    // SAFETY: the stub's promise; the list ends at the bottom activation.
    unsafe {
        if moves(function) {
            let state = &ipath_functions[function as usize % abi::MAX_FUNCTIONS];
            moving::end(thread, state.generation.load(Ordering::Relaxed));
            return;
        }
        if !thread::is_same_thread(thread) {
            stacks::renew(thread);
        }
        stacks::lock_own(thread);
        let mut found = find(thread, function, slot);
        if (*found).slot == u64::MAX && stacks::have_coroutines() {
            stacks::unlock(thread);
            if let Some(stack) = reap::stack_of_call(thread, slot) {
                stacks::arrive(thread, stack);
            }
            stacks::lock_own(thread);
            found = find(thread, function, slot);
        }
        if (*found).slot != u64::MAX {
            close_left_behind(thread, (*found).stack, slot - 8);
            // What is still above runs on other stacks and stays.
            let found = find(thread, function, slot);
            let caller = enclosing(thread, found);
            let top = raise(thread, found);
            end(
                thread,
                top,
                caller,
                (*thread).now,
                |record, ticks, nested, outermost| {
                    record::close(record, ticks, nested, outermost);
                    true
                },
            );
        }
        stacks::unlock(thread);
    }
}

/// The activation of `function` with its return address at `slot`, or the bottom of the list.
unsafe fn find(thread: *mut Thread, function: u64, slot: u64) -> *mut Activation {
    // SAFETY: the list is the thread's own and ends at the bottom.
    unsafe {
        let mut at = (*thread).top;
        while (*at).slot != u64::MAX
            && ((*at).slot != slot || u64::from((*at).function) != function)
        {
            at = (*at).prev;
        }
        at
    }
}

/// What encloses an activation: the next one below it, where it is not the innermost of all the next one
/// on the same stack, or the bottom.
unsafe fn enclosing(thread: *mut Thread, activation: *mut Activation) -> *mut Activation {
    // SAFETY: both are in the list, which ends at the bottom.
    unsafe {
        let mut at = (*activation).prev;
        if activation != (*thread).top {
            while (*at).slot != u64::MAX && (*at).stack != (*activation).stack {
                at = (*at).prev;
            }
        }
        at
    }
}

/// Ends the innermost activation, which `top` is, as returned, within `caller`; false where `close` does
/// not.
#[inline(always)]
unsafe fn end(
    thread: *mut Thread,
    top: *mut Activation,
    caller: *mut Activation,
    now: u64,
    close: impl FnOnce(&RecordHead, u64, u64, bool) -> bool,
) -> bool {
    // SAFETY: `top` is the thread's innermost activation and not the bottom.
    unsafe {
        let ticks = now.saturating_sub((*top).start);
        let is_outermost = (*top).outermost != 0;
        if is_current(top) && !close(&*(*top).record, ticks, (*top).nested, is_outermost) {
            return false;
        }
        pop(thread, top);
        (*caller).nested += ticks;
        true
    }
}

/// Whether the function has stayed instrumented since the activation began. If it was taken out
/// meanwhile its returns were not seen, and the activation counts as open.
#[inline(always)]
unsafe fn is_current(activation: *mut Activation) -> bool {
    // SAFETY: the activation is valid.
    unsafe {
        let slot = &ipath_functions[(*activation).function as usize % abi::MAX_FUNCTIONS];
        slot.generation.load(Ordering::Relaxed) == (*activation).generation
    }
}

/// Takes the innermost activation off the list.
///
/// # Safety
/// `top` is that, and not the bottom.
#[inline(always)]
pub(crate) unsafe fn pop(thread: *mut Thread, top: *mut Activation) {
    // SAFETY: as for `end`.
    unsafe {
        uncount(thread, (*top).function);
        (*thread).top = (*top).prev;
    }
}

/// Has the thread's `depths` count an activation of a function less.
///
/// # Safety
/// The thread is the caller's.
#[inline(always)]
pub(crate) unsafe fn uncount(thread: *mut Thread, function: u32) {
    // SAFETY: function ids are below MAX_FUNCTIONS, as many as `depths` has.
    unsafe {
        let depth = (*thread).depths.add(function as usize % abi::MAX_FUNCTIONS);
        *depth = (*depth).saturating_sub(1);
    }
}

/// Closes, as unwound, the innermost activations of `stack` whose return address lies at or below
/// `slot`: an exception or longjmp has left them. Those of other stacks stay.
///
/// # Safety
/// The thread is the caller's and marked busy.
pub(crate) unsafe fn close_left_behind(thread: *mut Thread, stack: u64, slot: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = (*thread).top;
        while (*at).slot != u64::MAX {
            let prev = (*at).prev;
            if (*at).stack == stack {
                if (*at).slot > slot {
                    break;
                }
                leave(thread, raise(thread, at));
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
pub(crate) unsafe fn close_overwritten(thread: *mut Thread, stack: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let top = (*thread).top;
            if (*top).slot >= SEPARATOR || (*top).stack != stack {
                break;
            }
            let Some(now) = foreign::read_array((*top).slot).map(u64::from_le_bytes) else {
                break;
            };
            if record::call_site(&*(*top).record).is_none_or(|site| site == now) {
                break;
            }
            leave(thread, top);
        }
    }
}

/// Closes, as unwound, the activations on the alternate signal stack where the thread goes on at `sp`,
/// outside it: the handlers there have been left.
///
/// # Safety
/// As for [`close_left_behind`]; `sp` is on `stack`.
pub(crate) unsafe fn close_handlers(thread: *mut Thread, stack: u64, sp: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let top = (*thread).top;
        if (*top).slot == u64::MAX || (*top).stack == stack {
            return;
        }
        sys::alternate_stack(&raw mut (*thread).alternate);
        let (low, size) = ((*thread).alternate.low, (*thread).alternate.size);
        let is_alternate = |at: u64| at.wrapping_sub(low) < size;
        if is_alternate(sp) {
            return;
        }
        close_where(thread, |activation| is_alternate(activation.slot));
    }
}

/// Closes, as unwound, the activations of `stack` and all others in the memory that the thread's stack
/// is in: there is more than one where a signal's frame could not be walked over.
///
/// # Safety
/// As for [`close_left_behind`].
pub(crate) unsafe fn close_within(thread: *mut Thread, stack: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let range = (*thread).stack;
        close_where(thread, |activation| {
            activation.stack == stack || range.holds(activation.slot)
        });
    }
}

unsafe fn close_where(thread: *mut Thread, is_left: impl Fn(&Activation) -> bool) {
    // SAFETY: the thread is the caller's; the list ends at the bottom.
    unsafe {
        let mut at = (*thread).top;
        while (*at).slot != u64::MAX {
            let prev = (*at).prev;
            if is_left(&*at) {
                leave(thread, raise(thread, at));
            }
            at = prev;
        }
    }
}

/// Closes every activation of the thread as unwound.
///
/// # Safety
/// As for [`close_left_behind`].
pub(crate) unsafe fn close_all(thread: *mut Thread) {
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let top = (*thread).top;
            if (*top).slot == u64::MAX {
                break;
            }
            leave(thread, top);
        }
    }
}

/// Closes the innermost activation as unwound.
///
/// # Safety
/// As for [`close_left_behind`].
pub(crate) unsafe fn leave(thread: *mut Thread, top: *mut Activation) {
    // SAFETY: `top` is the thread's innermost activation and not the bottom.
    unsafe {
        if (*top).slot == SEPARATOR {
            (*thread).top = (*top).prev;
            return;
        }
        if is_current(top) {
            record::unwind(&*(*top).record);
        }
        pop(thread, top);
    }
}

/// Moves `wanted` to the top of the list, above those over it, whose order stays. The links between
/// the places of the list never change, so what they hold is moved.
///
/// # Safety
/// `wanted` is on the thread's list, which the caller has locked.
pub(crate) unsafe fn raise(thread: *mut Thread, wanted: *mut Activation) -> *mut Activation {
    // SAFETY: `wanted` is on the thread's list.
    unsafe {
        let mut at = wanted;
        while at != (*thread).top {
            let above = (*at).next;
            swap(at, above);
            at = above;
        }
        at
    }
}

unsafe fn swap(a: *mut Activation, b: *mut Activation) {
    // SAFETY: both are valid and distinct; the links are put back.
    unsafe {
        let (a_links, b_links) = (((*a).prev, (*a).next), ((*b).prev, (*b).next));
        core::ptr::swap(a, b);
        ((*a).prev, (*a).next) = a_links;
        ((*b).prev, (*b).next) = b_links;
    }
}
