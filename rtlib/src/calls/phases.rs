//! Phases of the program, by which paths are kept apart.
//!
//! A phase is a call of a function that the user has named, or begins with a mark that a command
//! sets. A thread inside such a call is in the phase of the innermost one. Other threads are in the
//! phase that any thread has begun last, while it lasts, and otherwise in that of the last mark.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{AREA_PHASES, FURTHER, OUTSIDE, PhaseEntry, RecordHead};

use super::activation::{Activation, BOTTOM, SEPARATOR};
use crate::arch::clock;
use crate::ledger::record;
use crate::os::parameters;
use crate::os::shared::{header, item, take};
use crate::os::sys;

/// The phase to which a call of a thread belongs that begins now. `own` is the phase of the
/// innermost activation of the thread which is one.
#[inline(always)]
pub fn current(own: u32) -> u32 {
    if own != OUTSIDE {
        return own;
    }
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed) as u32;
    match of(&header().phase_begun) {
        OUTSIDE => of(&header().phase_marked),
        begun => begun,
    }
}

/// Begins a phase of this thread: a call of `function`. Returns its index.
pub fn begin(function: u32) -> u32 {
    let used = &header().phases_used;
    let stride = size_of::<PhaseEntry>() as u64;
    let Ok(index) = take(AREA_PHASES, used, stride, 0, |_| Ok(())) else {
        header().phases_further.fetch_add(1, Ordering::Relaxed);
        return FURTHER;
    };
    let entry = entry(index);
    let tid = if sys::may_call() { sys::gettid() } else { 0 };
    entry.tid.store(tid, Ordering::Relaxed);
    entry.function.store(function, Ordering::Relaxed);
    entry.begun.store(clock::now(), Ordering::Release);
    index
}

/// Makes the phase `index` that of threads outside of any.
pub fn note(index: u32) {
    header().phase_begun.store(index.into(), Ordering::Relaxed);
}

/// Ends the phase `index`, whose call has ended or is not recorded.
pub fn end(index: u32) {
    if index != FURTHER && index != OUTSIDE {
        entry(index).ended.store(clock::now(), Ordering::Relaxed);
    }
}

/// Ends the phase of an activation that has left a thread's list, whose innermost activation is now
/// `top`. `record` is that of its path. Sets `own`, the phase of the thread.
///
/// # Safety
/// The list belongs to the caller.
#[cold]
#[inline(never)]
pub unsafe fn leave(own: *mut u32, top: *const Activation, record: &RecordHead) {
    let Some(index) = record::phase(record) else {
        return;
    };
    end(index);
    // SAFETY: guaranteed by the caller.
    let outer = unsafe {
        *own = of(top);
        *own
    };
    let begun = &header().phase_begun;
    // Another thread may have begun one since.
    let _ = begun.compare_exchange(
        index.into(),
        outer.into(),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
}

/// The phase of a thread: that of its innermost activation on the same stack which is one. `top` is
/// the innermost activation.
///
/// # Safety
/// The list belongs to the caller.
#[cold]
#[inline(never)]
pub unsafe fn of(top: *const Activation) -> u32 {
    // SAFETY: the list ends at the bottom; records stay valid.
    unsafe {
        let mut at = top;
        while (*at).slot != BOTTOM && (*at).slot != SEPARATOR {
            if parameters::is_phase((*at).function) {
                return record::phase(&*(*at).record).unwrap_or(OUTSIDE);
            }
            at = (*at).prev;
        }
        OUTSIDE
    }
}

/// The entry of a phase.
fn entry(index: u32) -> &'static PhaseEntry {
    // SAFETY: indexes come from `take`.
    unsafe { item(AREA_PHASES, index.into(), size_of::<PhaseEntry>() as u64) }
}
