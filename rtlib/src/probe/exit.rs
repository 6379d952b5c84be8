//! What happens when a probed function is left.

use abi::image::FUNCTION_MOVES;

use super::next::{AGAIN, DONE};
use super::{busy, moves};
use crate::calls::{closing, coroutines, list, moving};
use crate::code;
use crate::ledger::record;
use crate::os::parameters::{self, is_alive};
use crate::thread::{self, Thread, registry};
use crate::walk::Frame;

/// Ends the activation of `function` whose return address is at `slot` where it is the innermost, at
/// `now`: the thread to take the slow path with, else [`DONE`].
///
/// # Safety
/// Called by the exit stub: `slot` is the address of the return address about to be used.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_fast_exit(function: u64, slot: u64, now: u64) -> *mut Thread {
    // SAFETY: the caller's promise.
    unsafe { fast::<false>(function, slot, now) }
}

/// The same of an exit by a tail call.
///
/// # Safety
/// As for [`ipath_fast_exit`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_fast_tail_exit(function: u64, slot: u64, now: u64) -> *mut Thread {
    // SAFETY: the caller's promise.
    unsafe { fast::<true>(function, slot, now) }
}

#[inline(always)]
unsafe fn fast<const TAIL: bool>(function: u64, slot: u64, now: u64) -> *mut Thread {
    let function = function as u32;
    if !is_alive() {
        return DONE;
    }
    let thread = thread::current();
    if thread.is_null() {
        return meet();
    }
    // SAFETY: the thread is the caller's own, and `busy` keeps signal handlers on it out.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let moves = moves(function);
        let has_none = match moves {
            true => !moving::is_begun(calls),
            false => list::is_empty(calls) && !code::coroutines::are_known(),
        };
        if has_none {
            return DONE;
        }
        if !busy::begin(thread, slot) {
            list::leave_open(calls, function, slot);
            return DONE;
        }
        if moves {
            return thread;
        }
        let top = (*calls).top;
        let is_innermost =
            (*top).slot == slot && (*top).function == function && thread::is_same(thread);
        if !is_innermost || !list::end(calls, top, (*top).prev, now, record::try_close::<TAIL>) {
            (*thread).now = now;
            return thread;
        }
        busy::end(thread);
        DONE
    }
}

/// Whether a function is one that moves stacks.
#[inline(always)]
fn moves(function: u32) -> bool {
    parameters::flags(function) & FUNCTION_MOVES != 0
}

/// Makes a thread known that comes out of a call which another one may have begun, or it itself before it had a control
/// block.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
fn meet() -> *mut Thread {
    let may_have_begun = code::coroutines::are_known() || registry::has_first();
    if !may_have_begun || !registry::register() {
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
    // SAFETY: the caller's promise.
    unsafe { slow::<false>(thread, function, slot) }
}

/// The same of an exit by a tail call.
///
/// # Safety
/// As for [`ipath_slow_exit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_tail_exit(thread: *mut Thread, function: u64, slot: u64) {
    // SAFETY: the caller's promise.
    unsafe { slow::<true>(thread, function, slot) }
}

unsafe fn slow<const TAIL: bool>(thread: *mut Thread, function: u64, slot: u64) {
    let function = function as u32;
    // SAFETY: the stub's promise.
    unsafe {
        if moves(function) {
            moves::end(thread, function);
            return;
        }
        if !thread::is_same(thread) {
            thread::renew(thread);
        }
        let calls = &raw mut (*thread).calls;
        list::lock_own(calls);
        let mut found = list::find(calls, function, slot);
        if found.is_null() && code::coroutines::are_known() {
            list::unlock(calls);
            come_to_stack_of(thread, slot);
            list::lock_own(calls);
            found = list::find(calls, function, slot);
        }
        if !found.is_null() {
            closing::close_left_behind(calls, (*found).stack, slot - 8);
            // What is still above runs on other stacks and stays.
            let found = list::find(calls, function, slot);
            let caller = list::enclosing(calls, found);
            let top = list::raise(calls, found);
            let close = |record: &_, ticks, nested, outermost| {
                record::close::<TAIL>(record, ticks, nested, outermost);
                true
            };
            list::end(calls, top, caller, (*thread).now, close);
        }
        list::unlock(calls);
    }
}

/// Makes the thread's list that of the stack that the call is on whose return address is at `slot`, where it
/// is known which that is.
unsafe fn come_to_stack_of(thread: *mut Thread, slot: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let frame = Frame::of_caller(slot, &(*thread).saved);
        if let Some(stack) = (*thread).walker.stack_of(&frame)
            && stack.is_whole
        {
            let calls = &raw mut (*thread).calls;
            coroutines::arrive(calls, &mut (*thread).ledger, stack.id);
        }
    }
}
