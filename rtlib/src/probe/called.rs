//! Calls on paths of measured functions only (`--path probes`): the path of a call is that of the
//! innermost open call, and this call's function.

use core::sync::atomic::Ordering;

use abi::image::BY_CALLERS;
use abi::segment::RecordHead;
use abi::shortage::Shortage;

use super::next::FOUND;
use super::remembering::{self, walk};
use crate::arch::clock;
use crate::calls::activation::{self, is_doubted};
use crate::calls::overhead::ipath_costs;
use crate::calls::{Calls, list};
use crate::code::coroutines;
use crate::code::epoch;
use crate::ledger::{Ledger, record};
use crate::os::parameters::ipath_parameters;
use crate::thread::Thread;
use crate::walk::memo::InEpoch;

/// Remembers a call under the innermost open call, so that the stub can record it. Returns the
/// stub's next action: the slow path if the thread has no record of the path, or if the innermost
/// open call may have been left behind.
///
/// # Safety
/// As for [`super::entry::remember_walk`].
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn remember(thread: *mut Thread, function: u32, slot: u64) -> *mut Thread {
    // SAFETY: guaranteed by the caller; the thread is marked busy.
    unsafe {
        (*thread).meter.pass_from(clock::now());
        let Some(epoch) = epoch::current() else {
            return thread;
        };
        let calls = &raw mut (*thread).calls;
        let top = (*calls).top;
        let is_open = || (*top).slot >= list::SEPARATOR || !list::is_stale(top);
        if (*top).slot <= slot || is_doubted((*top).slot) || !is_open() {
            return thread;
        }
        let can_be = can_be_remembered(thread);
        if can_be && recall(thread, InEpoch::of(function, epoch), activation::key(top)) {
            (*thread).meter.pass_until(clock::now());
            return thread.wrapping_byte_add(FOUND);
        }
    }
    // SAFETY: as above.
    unsafe { find(thread, function, slot) }
}

/// True if the innermost open call alone determines the path of a call. Otherwise a walk shows each
/// time which stack the thread is on.
///
/// # Safety
/// The thread belongs to the caller.
#[inline(always)]
unsafe fn can_be_remembered(thread: *mut Thread) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let is_trusted = ipath_parameters.path.load(Ordering::Relaxed) == BY_CALLERS;
        is_trusted && (*thread).walker.is_own() && list::is_at_home(&raw const (*thread).calls)
    }
}

/// Finds the call under the innermost open call of the stack that a walk finds, as [`remember`]
/// does.
///
/// # Safety
/// As for [`remember`].
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn find(thread: *mut Thread, function: u32, slot: u64) -> *mut Thread {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !walk(thread, function, slot) || !is_on_stack_of_top(thread) {
            return thread;
        }
        let Some(known) = find_record(thread, function) else {
            return thread;
        };
        if can_be_remembered(thread) {
            (*thread).walker.forget_words();
            remembering::remember(thread, known)
        } else {
            record_once(thread, known)
        }
    }
}

/// Lets the stub record the call of the last walk, which is not cached, with this record.
/// Everything else is taken from the thread, so the caller needs no stack at this point.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn record_once(thread: *mut Thread, known: &'static RecordHead) -> *mut Thread {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let cost = ipath_costs.of(record::way(known), (*thread).walker.words());
        (*thread).walker.find(known, cost);
        (*thread).meter.pass_until(clock::now());
    }
    thread.wrapping_byte_add(FOUND)
}

/// True if the call with this key is remembered. The stub can then record it.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn recall(thread: *mut Thread, function: InEpoch, key: u64) -> bool {
    // SAFETY: guaranteed by the caller; calls that are remembered by such a key have no words.
    unsafe { (*thread).walker.recall(function, key) }
}

/// True if the last walk is on the stack of the innermost activation. If there is none, on the
/// thread's own stack.
///
/// # Safety
/// The thread belongs to the caller.
#[inline(always)]
unsafe fn is_on_stack_of_top(thread: *mut Thread) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let walk = (*thread).walker.last_walk();
        let top = (*thread).calls.top;
        let is_there = if (*top).slot < list::SEPARATOR {
            (*top).stack == walk.stack
        } else {
            can_be_remembered(thread)
        };
        walk.is_told && is_there
    }
}

/// The record of a call of `function`; `None` if the thread has none.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn find_record(thread: *mut Thread, function: u32) -> Option<&'static RecordHead> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let caller = list::caller(&raw const (*thread).calls);
        (*thread).ledger.find_called(function, caller)
    }
}

/// The record of a call of `function` by this schema, created if necessary. Calls that have been
/// left behind are not on the list any more.
///
/// # Errors
/// There is no room for it, nor for that of the function's overflow path.
///
/// # Safety
/// The list and the ledger belong to the caller.
pub(super) unsafe fn find_or_make(
    ledger: &mut Ledger,
    calls: *const Calls,
    function: u32,
    schema: u8,
) -> Result<&'static RecordHead, Shortage> {
    // SAFETY: guaranteed by the caller.
    let caller = unsafe { list::caller(calls) };
    ledger.find_or_make_called(function, caller, schema)
}

/// Notes that the thread switches to another stack, so its open calls may be those of the former.
pub(super) fn note_switch() {
    coroutines::distrust_callers();
}
