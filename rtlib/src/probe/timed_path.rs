//! The actions of timed paths: paths inside functions that are measured by themselves.
//!
//! A path is a span that begins and ends with the path. Its number is known at its end, so it
//! begins in a record of its function's paths, and ends in the record of its number. That record's
//! path in the tree has one more call site, innermost: [`path_site`]. A path that was left stays in
//! the first record.
//!
//! The frame of a function is at several places during a path. So each hook has its own location,
//! in its [`Row`].

use abi::path::Row;
use abi::segment::path_site;

use super::exit::Leaving;
use super::point::{Framed, verify_pass};
use super::{path, span, trial};
use crate::calls::activation::Activation;
use crate::calls::meter::Meter;
use crate::calls::overhead::Estimate;
use crate::calls::{cost, list};
use crate::ledger::record;
use crate::thread::Thread;

/// The distance from the return address of a hook's call to an operand of 4 bytes. It has the
/// distance from the end of the operand to the hook's row.
pub const TO_ROW: usize = 3;

/// Each hook has its own location of the frame.
struct ByHook;

impl Framed for ByHook {
    #[inline(always)]
    unsafe fn standing(_: u32, low: u64) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe { row(low) }.standing
    }
}

/// The row of the hook whose stub has started at `low`.
///
/// # Safety
/// The stub has not returned.
#[inline(always)]
unsafe fn row(low: u64) -> &'static Row {
    // SAFETY: the hook has pushed a register, and the call its return address. Trampolines do not
    // change while they are in use.
    unsafe {
        let back = (low.wrapping_sub(16) as *const u64).read();
        let operand = back.wrapping_add(TO_ROW as u64);
        let distance = (operand as *const i32).read_unaligned();
        let row = operand
            .wrapping_add(4)
            .wrapping_add(i64::from(distance) as u64);
        &*(row as *const Row)
    }
}

/// The end of a path.
struct PathEnd;

impl Leaving for PathEnd {
    const IS_SPAN: bool = true;

    fn returning(_: u64) -> u64 {
        0
    }

    #[inline(always)]
    fn estimate(meter: &mut Meter) -> &mut Estimate {
        &mut meter.path_ends
    }

    #[inline(always)]
    unsafe fn prepare<const IS_SLOW: bool>(
        thread: *mut Thread,
        activation: *mut Activation,
        mark: u64,
    ) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { name::<IS_SLOW>(thread, activation, row(mark)) }
    }
}

/// Moves an activation to the record of the path that ends at a hook with this row. It stays where
/// it is if the number of the path is not known. False if there is no such record yet, unless
/// `IS_SLOW`: then it is created.
///
/// # Safety
/// The thread belongs to the caller and is marked busy, and the activation is on its list.
#[inline(always)]
unsafe fn name<const IS_SLOW: bool>(
    thread: *mut Thread,
    activation: *mut Activation,
    row: &Row,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let ledger = &mut (*thread).ledger;
        let begun = &*(*activation).record;
        let is_known = record::has_path_site(begun) || !ledger.owns(begun);
        // The end of a path that was under way while the function was out does not count.
        if is_known || !list::is_current(activation) {
            return true;
        }
        let Some(number) = path::number_at_end(row, (*activation).slot) else {
            return true;
        };
        let site = path_site(number);
        let known = if IS_SLOW {
            ledger.find_or_make_longer(begun, site).ok()
        } else {
            ledger.find_longer(begun, (site, 0, 0))
        };
        if let Some(known) = known {
            if !cost::is_decided_at_exit(begun) {
                record::move_call(begun, known);
            }
            (*activation).record = known;
        }
        IS_SLOW || known.is_some()
    }
}

/// Caches the walk of the call in which a path begins, so that the stub can record it. Returns the
/// stub's next action.
///
/// # Safety
/// Called by the stub of starts of timed paths, as [`span::ipath_remember_span`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_remember_path(
    number: u64,
    low: u64,
    fp: u64,
    has_tried: bool,
) -> *mut Thread {
    // SAFETY: guaranteed by the stub.
    unsafe { span::begin::<ByHook>(number, low, fp, has_tried) }
}

/// Repeats the cached walk of a call, as [`super::point::ipath_verify_point`] does.
///
/// # Safety
/// As for [`ipath_remember_path`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_verify_path(number: u64, low: u64, fp: u64) {
    // SAFETY: guaranteed by the stub.
    unsafe { verify_pass::<ByHook>(number as u32, low, fp) }
}

/// Records a path that begins, at any cost.
///
/// # Safety
/// Called by the stub of starts of timed paths, as [`span::ipath_slow_span`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_path(
    thread: *mut Thread,
    number: u64,
    low: u64,
    calls: trial::Calls,
) {
    // SAFETY: guaranteed by the stub.
    unsafe { span::begin_slowly::<ByHook>(thread, number, low, calls) }
}

/// The fast path of the end of a timed path.
///
/// # Safety
/// Called by the stub of ends of timed paths, as [`span::ipath_fast_span_end`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_fast_path_end(
    number: u64,
    low: u64,
    now: u64,
    _has_tried: bool,
    fp: u64,
) -> *mut Thread {
    // SAFETY: guaranteed by the stub.
    unsafe { span::end::<ByHook, PathEnd>(number, low, now, fp) }
}

/// The slow path of the end of a timed path. There may be none to end, as for a span.
///
/// # Safety
/// Called by the stub of ends of timed paths, as [`span::ipath_slow_span_end`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_path_end(thread: *mut Thread, number: u64, low: u64) {
    // SAFETY: guaranteed by the stub.
    unsafe { span::end_slowly::<ByHook, PathEnd>(thread, number, low) }
}
