//! The actions of spans: parts of a call that begin and end inside its function.
//!
//! A span has an activation like a call, with the slot of the call in whose frame it is. It is
//! never in doubt ([`doubt`]): registers differ between its start and its end. `low` is the stack
//! pointer at the stub's start, below the red zone.

use abi::probe::Kind;

use super::exit::{Leaving, SpanEnd, fast, slow};
use super::point::{ByNumber, Framed, caller, frame, pass, remember};
use super::recording::Entering;
use super::trial;
use crate::arch::clock;
use crate::calls::doubt;
use crate::os::parameters;
use crate::thread::{self, Thread};

/// Caches the walk of the call in which the span `number` begins, so that the stub can record the
/// span. Returns the stub's next action.
///
/// # Safety
/// Called by the stub of starts of spans, on the calling thread's stack from `low` on, with `fp` as
/// it is at the hook. `has_tried` if this was called before for this span.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_remember_span(
    number: u64,
    low: u64,
    fp: u64,
    has_tried: bool,
) -> *mut Thread {
    // SAFETY: guaranteed by the stub.
    unsafe { begin::<ByNumber>(number, low, fp, has_tried) }
}

/// Records a span that begins, at any cost. Runs on the private stack, with signals blocked and the
/// thread's callee-saved registers stored.
///
/// # Safety
/// Called by the stub of starts of spans with the thread that [`ipath_remember_span`] returned. The
/// stub clears the busy mark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_span(
    thread: *mut Thread,
    number: u64,
    low: u64,
    calls: trial::Calls,
) {
    // SAFETY: guaranteed by the stub.
    unsafe { begin_slowly::<ByNumber>(thread, number, low, calls) }
}

/// The fast path of the end of a span. Ends it as of `now` if it is the innermost activation.
/// Returns [`super::next::DONE`], or the thread for the slow path.
///
/// # Safety
/// Called by the stub of ends of spans, on the calling thread's stack from `low` on, with `fp` as
/// it is at the hook.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_fast_span_end(
    number: u64,
    low: u64,
    now: u64,
    _has_tried: bool,
    fp: u64,
) -> *mut Thread {
    // SAFETY: guaranteed by the stub.
    unsafe { end::<ByNumber, SpanEnd>(number, low, now, fp) }
}

/// The slow path of the end of a span. There may be none to end: it may have begun before it was
/// instrumented, or the function was left from elsewhere and continues here.
///
/// # Safety
/// Called by the stub of ends of spans with the thread that the fast path returned. The stub clears
/// the busy mark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_span_end(thread: *mut Thread, number: u64, low: u64) {
    // SAFETY: guaranteed by the stub.
    unsafe { end_slowly::<ByNumber, SpanEnd>(thread, number, low) }
}

/// The start of a span or path as [`ipath_remember_span`] does it.
///
/// # Safety
/// As for [`ipath_remember_span`].
#[inline(always)]
pub(super) unsafe fn begin<F: Framed>(
    number: u64,
    low: u64,
    fp: u64,
    has_tried: bool,
) -> *mut Thread {
    let is_special = doubt::do_stacks_take_turns();
    // SAFETY: guaranteed by the caller.
    unsafe { remember::<F>(number as u32, low, fp, has_tried || is_special) }
}

/// The start of a span or path as [`ipath_slow_span`] does it.
///
/// # Safety
/// As for [`ipath_slow_span`].
#[inline(always)]
pub(super) unsafe fn begin_slowly<F: Framed>(
    thread: *mut Thread,
    number: u64,
    low: u64,
    calls: trial::Calls,
) {
    let number = number as u32;
    let entering = Entering::Span(parameters::kind(number) == Kind::Call);
    // SAFETY: guaranteed by the caller; the thread is marked busy.
    unsafe { pass::<F>(thread, number, low, calls, entering) }
}

/// The end of a span or path as [`ipath_fast_span_end`] does it.
///
/// # Safety
/// As for [`ipath_fast_span_end`].
#[inline(always)]
pub(super) unsafe fn end<F: Framed, L: Leaving>(
    number: u64,
    low: u64,
    now: u64,
    fp: u64,
) -> *mut Thread {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (_, slot) = frame::<F>(number as u32, low, fp);
        fast::<L>(number, slot, low, now)
    }
}

/// The end of a span or path as [`ipath_slow_span_end`] does it.
///
/// # Safety
/// As for [`ipath_slow_span_end`].
#[inline(always)]
pub(super) unsafe fn end_slowly<F: Framed, L: Leaving>(thread: *mut Thread, number: u64, low: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        thread::settle(thread);
        if let Some((slot, registers, is_whole)) = caller::<F>(thread, number as u32, low) {
            slow::<L>(thread, number, slot, low, (&registers, is_whole));
        }
        (*thread).meter.pass_until(clock::now());
    }
}
