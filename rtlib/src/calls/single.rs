//! Single calls that are kept: the slowest of each function, and the last ones ([`abi::single`]).
//!
//! Each thread has blocks of its own, so a call that ends competes with no other thread, and no
//! lock can be left behind by a jump out of a signal handler. A reader takes the slowest of all
//! threads' calls. A call that is not among the slowest costs a comparison with the bar of its
//! block.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::single::{
    CALL_RETURNED, CALLEE_IS_PARTIAL, CALLEES, SingleCall, UNKNOWN_CPU, next_bar, place_of,
};

use super::activation::{Activation, Callees};
use super::blocks::{Block, kept};
use super::meter::Meter;
use super::values::returned;
use crate::arch::fence;
use crate::ledger::{areas, record};
use crate::os::parameters;
use crate::os::shared::header;

/// True if single calls are kept of an activation's function.
///
/// # Safety
/// The activation is valid, and no separator.
#[inline(always)]
pub unsafe fn are_kept(activation: *const Activation) -> bool {
    // SAFETY: guaranteed by the caller; records stay valid.
    let record = unsafe { &*(*activation).record };
    parameters::schema(record::schema(record)).keeps_single()
}

/// Keeps a call that has ended and counts, if it is one of the slowest, or if last calls are kept.
/// Without a block, counts it as one that is not kept.
///
/// # Safety
/// The activation is valid, and the meter has measured it.
#[inline(always)]
pub unsafe fn keep(block: Option<Block>, meter: &Meter, top: *mut Activation) {
    let Some(block) = block else {
        header().calls_without_block.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let wall = meter.ticks(top);
        let head = block.head();
        let (slowest, traced) = kept();
        if wall >= head.bar.load(Ordering::Relaxed) {
            keep_slow(block, slowest, meter, top, wall);
        }
        if traced != 0 {
            let turn = head.turn.load(Ordering::Relaxed);
            let number = slowest + turn % traced;
            write(block.call(number), meter, top, wall);
            head.turn.store(turn + 1, Ordering::Release);
        }
    }
}

/// Keeps a call as one of the slowest, in place of the fastest of them if all items are in use.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn keep_slow(block: Block, slowest: u64, meter: &Meter, top: *mut Activation, wall: u64) {
    let head = block.head();
    let filled = head.filled.load(Ordering::Relaxed);
    let number = place_of(filled, head.fastest.load(Ordering::Relaxed), slowest);
    let wall_of = |number: u32| block.call(number.into()).wall.load(Ordering::Relaxed);
    // SAFETY: guaranteed by the caller.
    unsafe { write(block.call(number.into()), meter, top, wall) };
    let filled = if number == filled { filled + 1 } else { filled };
    head.filled.store(filled, Ordering::Relaxed);
    if let Some((fastest, bar)) = next_bar(filled, slowest, wall_of) {
        head.fastest.store(fastest, Ordering::Relaxed);
        head.bar.store(bar, Ordering::Relaxed);
    }
}

/// Writes a call that has ended.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn write(call: &SingleCall, meter: &Meter, top: *mut Activation, wall: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // A writing that a jump has left is odd already.
        let sequence = call.sequence.load(Ordering::Relaxed) | 1;
        call.sequence.store(sequence, Ordering::Relaxed);
        fence::stores_in_order();
        let put = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
        let record = &*(*top).record;
        call.record
            .store(areas::number_of(record), Ordering::Relaxed);
        let tid = areas::thread(record.thread.load(Ordering::Relaxed).into());
        call.tid
            .store(tid.tid.load(Ordering::Relaxed), Ordering::Relaxed);
        put(&call.start, (*top).entered);
        put(&call.end, meter.sources.now());
        put(&call.wall, wall);
        put(&call.nested, (*top).nested);
        put(&call.cpu, meter.known_cpu().unwrap_or(UNKNOWN_CPU));
        for (to, &argument) in call.arguments.iter().zip(&(*top).arguments) {
            put(to, argument as u64);
        }
        let value = returned(meter, top);
        put(&call.flags, if value.is_some() { CALL_RETURNED } else { 0 });
        put(&call.returned, value.unwrap_or(0) as u64);
        let more = (*top).more;
        for number in 0..CALLEES {
            let (function, ticks) = if more.is_null() {
                (0, 0)
            } else {
                let callees = &(*more).callees;
                (callees.function[number], callees.ticks[number])
            };
            call.callees[number].store(function, Ordering::Relaxed);
            put(&call.callee_ticks[number], ticks);
        }
        fence::stores_in_order();
        call.sequence.store(sequence + 1, Ordering::Relaxed);
    }
}

impl Callees {
    /// Adds a call of `function`, which took this many ticks. If all places are taken, it takes the
    /// place of the function with the least time, unless that has more.
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    pub fn add(&mut self, function: u32, ticks: u64) {
        let word = function.wrapping_add(1);
        let mut least = 0;
        for number in 0..CALLEES {
            if self.function[number] == 0 {
                self.function[number] = word;
                self.ticks[number] = 0;
                if let Some(next) = self.function.get_mut(number + 1) {
                    *next = 0;
                }
            }
            if self.function[number] & !CALLEE_IS_PARTIAL == word {
                self.ticks[number] = self.ticks[number].wrapping_add(ticks);
                return;
            }
            if self.ticks[number] < self.ticks[least] {
                least = number;
            }
        }
        if self.ticks[least] < ticks {
            self.function[least] = word | CALLEE_IS_PARTIAL;
            self.ticks[least] = ticks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_the_most_time_are_told_apart() {
        // SAFETY: zeroes are a valid value: no function.
        let mut callees: Callees = unsafe { core::mem::zeroed() };
        for (function, ticks) in [(7, 1), (0, 30), (7, 2), (1, 10), (2, 20), (3, 5)] {
            callees.add(function, ticks);
        }
        assert_eq!(callees.function, [8, 1, 2, 3, 4]);
        assert_eq!(callees.ticks, [3, 30, 10, 20, 5]);
        // Too short, then long enough for the place of 7, which comes back.
        callees.add(9, 3);
        callees.add(9, 4);
        callees.add(9, 1);
        callees.add(7, 50);
        let partial = |function: u32| (function + 1) | CALLEE_IS_PARTIAL;
        assert_eq!(callees.function, [partial(7), 1, 2, 3, 4]);
        assert_eq!(callees.ticks, [50, 30, 10, 20, 5]);
    }
}
