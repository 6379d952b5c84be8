//! The action of a point: counts the call of its function whose frame contains it.
//!
//! `low` is the stack pointer at the stub's start, below the red zone.

use abi::arch::stack::RED_ZONE;
use abi::point::Standing;
use abi::probe::Kind;
use unwind::Saved;

use super::entry::{begin, remember_walk};
use super::recording::{Entering, record_slowly};
use super::verify::verify;
use super::{busy, trial};
use crate::arch::clock;
use crate::ledger::Missed;
use crate::os::parameters::{self, is_alive};
use crate::os::shared;
use crate::thread::{self, Thread};

/// The place of a hook's [`Standing`].
pub(super) trait Framed {
    /// The encoded location of the frame at the hook with this number.
    ///
    /// # Safety
    /// Called by the hook's stub, which has started at `low`.
    unsafe fn standing(number: u32, low: u64) -> u64;
}

/// All hooks of one number find the frame at the same place, which is in the table of details.
pub(super) struct ByNumber;

impl Framed for ByNumber {
    #[inline(always)]
    unsafe fn standing(number: u32, _: u64) -> u64 {
        parameters::detail(number)
    }
}

/// Caches the walk of the call that has reached the point `number`, so that the stub can record it.
/// Returns the stub's next action.
///
/// # Safety
/// Called by the stub of points, on the calling thread's stack from `low` on, with `fp` as it is at
/// the point. `has_tried` if this was called before for this call.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_remember_point(
    number: u64,
    low: u64,
    fp: u64,
    has_tried: bool,
) -> *mut Thread {
    // SAFETY: guaranteed by the stub.
    unsafe { remember::<ByNumber>(number as u32, low, fp, has_tried) }
}

/// Caches the walk of the call whose frame contains the point or span `number`, unless `is_slow`.
/// Returns the stub's next action.
///
/// # Safety
/// As for [`ipath_remember_point`].
#[inline(always)]
pub(super) unsafe fn remember<F: Framed>(
    number: u32,
    low: u64,
    fp: u64,
    is_slow: bool,
) -> *mut Thread {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let thread = match begin(number, low) {
            Ok(thread) => thread,
            Err(next) => return next,
        };
        let (standing, slot) = frame::<F>(number, low, fp);
        let stack = &(*thread).walker.stack;
        let is_known = thread::is_same(thread) && stack.holds(low) && stack.holds(slot);
        let is_apart = shared::keeps_phases() && parameters::kind(number) == Kind::Point;
        if is_slow || is_apart || !is_known {
            return thread;
        }
        let Some(fp) = caller_register(standing.fp, fp, slot, low) else {
            return thread;
        };
        (*thread).walker.entry_fp = fp;
        remember_walk(thread, number, slot)
    }
}

/// Repeats the cached walk of a call, and kills the program with SIGILL if the two walks differ.
/// Otherwise the stub continues as usual.
///
/// # Safety
/// As for [`ipath_remember_point`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_verify_point(number: u64, low: u64, fp: u64) {
    // SAFETY: guaranteed by the stub.
    unsafe { verify_pass::<ByNumber>(number as u32, low, fp) }
}

/// Repeats the cached walk of a call as [`ipath_verify_point`] does.
///
/// # Safety
/// As for [`ipath_remember_point`].
#[inline(always)]
pub(super) unsafe fn verify_pass<F: Framed>(number: u32, low: u64, fp: u64) {
    let thread = thread::current();
    if !is_alive() || thread.is_null() {
        return;
    }
    // SAFETY: guaranteed by the stub; `busy` excludes signal handlers on the thread.
    unsafe {
        let (standing, slot) = frame::<F>(number, low, fp);
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

/// Records a call that has reached a point, at any cost. Runs on the private stack, with signals
/// blocked and the thread's callee-saved registers stored.
///
/// # Safety
/// Called by the stub of points with the thread that [`ipath_remember_point`] returned. The stub
/// clears the busy mark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_point(
    thread: *mut Thread,
    number: u64,
    low: u64,
    calls: trial::Calls,
) {
    // SAFETY: guaranteed by the stub; the thread is marked busy.
    unsafe { pass::<ByNumber>(thread, number as u32, low, calls, Entering::Point) }
}

/// Records a call that has reached the point or span `number`, at any cost.
///
/// # Safety
/// As for [`ipath_slow_point`].
pub(super) unsafe fn pass<F: Framed>(
    thread: *mut Thread,
    number: u32,
    low: u64,
    calls: trial::Calls,
    entering: Entering,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        thread::settle(thread);
        trial::find_out(thread, calls);
        let caller = caller::<F>(thread, number, low).ok_or(Missed::Stack);
        let recorded = caller.and_then(|(slot, registers, is_whole)| {
            record_slowly(thread, number, slot, (&registers, is_whole), entering)
        });
        if let Err(why) = recorded {
            (*thread).ledger.count_missed(why);
        }
        (*thread).meter.pass_until(clock::now());
    }
}

/// The slot of the call whose frame contains the point or span `number`, and the registers of its
/// caller. True if all of them are known, otherwise only the frame pointer is. `None` if the frame
/// is not on the stack.
///
/// # Safety
/// The thread runs on its private stack, with its registers at the hook stored.
pub(super) unsafe fn caller<F: Framed>(
    thread: *mut Thread,
    number: u32,
    low: u64,
) -> Option<(u64, Saved, bool)> {
    // SAFETY: guaranteed by the caller; the words read are on the thread's stack.
    unsafe {
        let saved = &(*thread).saved;
        let (standing, slot) = frame::<F>(number, low, saved.fp);
        if !slot.is_multiple_of(8) || !(*thread).walker.is_on_stack_of(low, slot) {
            return None;
        }
        let register = |words: u8, now: u64| caller_register(words, now, slot, low);
        let mut at_entry = Saved {
            fp: register(standing.fp, saved.fp)?,
            others: saved.others,
        };
        let places = standing.others.unwrap_or_default();
        for (other, words) in at_entry.others.iter_mut().zip(places) {
            *other = register(words, *other)?;
        }
        Some((slot, at_entry, standing.others.is_some()))
    }
}

/// The location of the frame at the point or span `number`, and the address of its slot.
///
/// # Safety
/// As for [`Framed::standing`].
#[inline(always)]
pub(super) unsafe fn frame<F: Framed>(number: u32, low: u64, fp: u64) -> (Standing, u64) {
    // SAFETY: guaranteed by the caller.
    let standing = Standing::decode(unsafe { F::standing(number, low) });
    (standing, standing.slot_at(low.wrapping_add(RED_ZONE), fp))
}

/// A register of the function's caller: the value `now` if `words` is 0, otherwise the word at
/// `words` words below the slot. `None` if that word is not on the stack.
///
/// # Safety
/// The stack extends from `low` to `slot`.
#[inline(always)]
unsafe fn caller_register(words: u8, now: u64, slot: u64, low: u64) -> Option<u64> {
    if words == 0 {
        return Some(now);
    }
    let at = slot.wrapping_sub(8 * u64::from(words));
    let is_inside = low <= at && at < slot && at.is_multiple_of(8);
    // SAFETY: guaranteed by the caller.
    is_inside.then(|| unsafe { (at as *const u64).read() })
}
