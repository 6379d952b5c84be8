//! What happens when a thread comes through a point: the call is counted whose frame its function has there.
//!
//! `low` is where the stub has begun on the stack: the stack pointer without the red zone.

use abi::arch::stack::RED_ZONE;
use abi::point::Standing;
use unwind::Saved;

use super::entry::{begin, record_slowly, remember_walk};
use super::verify::verify;
use super::{busy, trial};
use crate::arch::clock;
use crate::ledger::Missed;
use crate::os::parameters::{self, is_alive};
use crate::thread::{self, Thread};

/// Remembers the walk of the call that has come through the point `number`, so that the stub can record it: what to do
/// next.
///
/// # Safety
/// Called by the stub of points, on the calling thread's stack from `low` on, with `fp` as it is at the point.
/// `has_tried` where this has been called for this call before.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_remember_point(
    number: u64,
    low: u64,
    fp: u64,
    has_tried: bool,
) -> *mut Thread {
    let number = number as u32;
    // SAFETY: the stub's promise.
    unsafe {
        let thread = match begin(number, low) {
            Ok(thread) => thread,
            Err(next) => return next,
        };
        let standing = Standing::decode(parameters::detail(number));
        let slot = standing.slot_at(low.wrapping_add(RED_ZONE), fp);
        let stack = &(*thread).walker.stack;
        let is_known = thread::is_same(thread) && stack.holds(low) && stack.holds(slot);
        if has_tried || !is_known {
            return thread;
        }
        let Some(fp) = caller_register(standing.fp, fp, slot, low) else {
            return thread;
        };
        (*thread).walker.entry_fp = fp;
        remember_walk(thread, number, slot)
    }
}

/// Makes the walk again that is remembered for a call, and where it differs ends the program with SIGILL. Then the stub
/// goes on as ever.
///
/// # Safety
/// As for [`ipath_remember_point`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_verify_point(number: u64, low: u64, fp: u64) {
    let number = number as u32;
    let thread = thread::current();
    if !is_alive() || thread.is_null() {
        return;
    }
    let standing = Standing::decode(parameters::detail(number));
    let slot = standing.slot_at(low.wrapping_add(RED_ZONE), fp);
    // SAFETY: the stub's promise; `busy` keeps signal handlers on the thread out.
    unsafe {
        if busy::begin(thread, low).is_err() {
            return;
        }
        let stack = &(*thread).walker.stack;
        let is_known = stack.holds(low) && stack.holds(slot);
        let saved = is_known.then(|| caller_register(standing.fp, fp, slot, low));
        if let Some(fp) = saved.flatten() {
            verify(thread, number, slot, fp);
        }
        busy::end(thread);
    }
}

/// Records a call that has come through a point whatever it takes. Runs on the private stack, with signals blocked and
/// the thread's callee-saved registers stored.
///
/// # Safety
/// Called by the stub of points with what [`ipath_remember_point`] returned; the stub ends the thread's being busy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_point(
    thread: *mut Thread,
    number: u64,
    low: u64,
    calls: trial::Calls,
) {
    // SAFETY: the stub's promise; the thread is marked busy.
    unsafe {
        thread::settle(thread);
        trial::find_out(thread, calls);
        if let Err(why) = record_point(thread, number as u32, low) {
            (*thread).ledger.count_missed(why);
        }
        (*thread).meter.pass_until(clock::now());
    }
}

unsafe fn record_point(thread: *mut Thread, number: u32, low: u64) -> Result<(), Missed> {
    // SAFETY: the caller's promise; the words read are on the thread's stack.
    unsafe {
        let saved = &(*thread).saved;
        let standing = Standing::decode(parameters::detail(number));
        let slot = standing.slot_at(low.wrapping_add(RED_ZONE), saved.fp);
        if !slot.is_multiple_of(8) || !(*thread).walker.is_on_stack_of(low, slot) {
            return Err(Missed::Stack);
        }
        let register =
            |words: u8, now: u64| caller_register(words, now, slot, low).ok_or(Missed::Stack);
        let mut at_entry = Saved {
            fp: register(standing.fp, saved.fp)?,
            others: saved.others,
        };
        let places = standing.others.unwrap_or_default();
        for (other, words) in at_entry.others.iter_mut().zip(places) {
            *other = register(words, *other)?;
        }
        let is_whole = standing.others.is_some();
        record_slowly(thread, number, slot, (&at_entry, is_whole), false)
    }
}

/// A register that the function's caller has back when it returns: as it is `now`, or so many words down from the slot;
/// `None` where that is no place on the stack.
///
/// # Safety
/// The stack is one from `low` to `slot`.
#[inline(always)]
unsafe fn caller_register(words: u8, now: u64, slot: u64, low: u64) -> Option<u64> {
    if words == 0 {
        return Some(now);
    }
    let at = slot.wrapping_sub(8 * u64::from(words));
    let is_inside = low <= at && at < slot && at.is_multiple_of(8);
    // SAFETY: the caller's promise.
    is_inside.then(|| unsafe { (at as *const u64).read() })
}
