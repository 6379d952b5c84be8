//! Records: what a thread has seen of a path. One writer, so plain loads and stores; readers in
//! another process go by the sequence number.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::MAX_TIMERS;
use abi::image::SCALE_SHIFT;
use abi::segment::{FIRST_NODE, Histogram, INLINE_BUCKETS, NO_BUCKET, RecordHead, RecordTimer};

use super::areas::{self, For};
use super::tags::TAGS;
use crate::arch::fence;
use crate::os::parameters::ipath_parameters;

/// A record for a thread and a path, for which there is a tag.
pub fn make(thread: u32, tid: u32, function: u32, path: u32, what: For) -> Option<u32> {
    let index = areas::take_record(what, |count| TAGS.reserve(count))?;
    let record = areas::record(index);
    // There are fewer of both: the abi has a check of it.
    record.thread.store(thread as u16, Ordering::Relaxed);
    record.function.store(function as u16, Ordering::Relaxed);
    record.tid.store(tid, Ordering::Relaxed);
    record.path.store(path, Ordering::Release);
    Some(index)
}

#[inline(always)]
fn add(counter: &AtomicU64, value: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(value),
        Ordering::Relaxed,
    );
}

/// Counts a call that begins.
#[inline(always)]
pub fn enter(record: &RecordHead) {
    add(&record.entered, 1);
}

/// Counts a call that was left without a return.
#[inline(always)]
pub fn unwind(record: &RecordHead) {
    add(&record.unwound, 1);
}

/// The return address of the calls that a record counts; `None` where it counts those of many call
/// sites.
pub fn call_site(record: &RecordHead) -> Option<u64> {
    let path = areas::node(record.path.load(Ordering::Relaxed));
    let caller = path.parent.load(Ordering::Relaxed);
    (caller >= FIRST_NODE).then(|| areas::node(caller).key.load(Ordering::Relaxed))
}

#[inline(always)]
fn begin(record: &RecordHead) {
    let sequence = record.sequence.load(Ordering::Relaxed);
    record
        .sequence
        .store(sequence.wrapping_add(1), Ordering::Relaxed);
    fence::stores_in_order();
}

#[inline(always)]
fn end(record: &RecordHead) {
    fence::stores_in_order();
    let sequence = record.sequence.load(Ordering::Relaxed);
    record
        .sequence
        .store(sequence.wrapping_add(1), Ordering::Relaxed);
}

/// Adds a call that returned: `ticks` in all, `nested` of them in probed functions it called,
/// `outermost` unless a call of the same function encloses it; with `TAIL` it has left by a tail call.
pub fn close<const TAIL: bool>(record: &RecordHead, ticks: u64, nested: u64, outermost: bool) {
    add_closed::<true, TAIL>(record, ticks, nested, outermost);
}

/// The same where it takes no more memory; false where nothing has been done.
#[inline(always)]
pub fn try_close<const TAIL: bool>(
    record: &RecordHead,
    ticks: u64,
    nested: u64,
    outermost: bool,
) -> bool {
    let closed = record.closed.load(Ordering::Relaxed);
    let must_grow = |number| must_grow(timer(record, number), number, ticks);
    if closed != 0 && (is_full(closed) || (0..timers()).any(must_grow)) {
        return false;
    }
    add_closed::<false, TAIL>(record, ticks, nested, outermost);
    true
}

/// Whether the inline buckets are to be emptied before the next value.
#[inline(always)]
fn is_full(closed: u64) -> bool {
    closed.is_multiple_of(u64::from(FULL))
}

#[inline(always)]
fn timers() -> usize {
    (ipath_parameters.timers.load(Ordering::Relaxed) as usize).min(MAX_TIMERS)
}

#[inline(always)]
fn add_closed<const GROW: bool, const TAIL: bool>(
    record: &RecordHead,
    ticks: u64,
    nested: u64,
    outermost: bool,
) {
    begin(record);
    let closed = record.closed.load(Ordering::Relaxed);
    let is_first = closed == 0;
    add(&record.closed, 1);
    if TAIL {
        add(&record.tail, 1);
    }
    for number in 0..timers() {
        let timer = timer(record, number);
        add(&timer.sum, ticks);
        add(&timer.exclusive, ticks.saturating_sub(nested));
        if outermost {
            add(&timer.outermost, ticks);
        }
        if is_first || ticks < timer.min.load(Ordering::Relaxed) {
            timer.min.store(ticks, Ordering::Relaxed);
        }
        if ticks > timer.max.load(Ordering::Relaxed) {
            timer.max.store(ticks, Ordering::Relaxed);
        }
        let exponent = exponent(number, ticks);
        if is_first {
            place(timer, exponent);
        } else if GROW && is_full(closed) {
            empty(timer);
        }
        bucket::<GROW>(timer, exponent);
    }
    end(record);
}

#[inline(always)]
fn timer(record: &RecordHead, number: usize) -> &RecordTimer {
    let head: *const RecordHead = record;
    // SAFETY: a record is its head and `timers` timers after it, by the segment's layout.
    unsafe {
        &*head
            .byte_add(size_of::<RecordHead>() + number * size_of::<RecordTimer>())
            .cast()
    }
}

/// k with the value in [2^k, 2^(k+1)) of the timer's unit; 0 for the value 0.
#[inline(always)]
fn exponent(number: usize, ticks: u64) -> u32 {
    let scale = ipath_parameters.scale[number].load(Ordering::Relaxed);
    let value = ((u128::from(ticks) * u128::from(scale)) >> SCALE_SHIFT) as u64;
    63 - (value | 1).leading_zeros()
}

/// Values in one bucket outside the inline ones, a power of two, after which it is seen whether those
/// are the right ones.
pub const OFTEN: u32 = 64;
/// Closed calls, a power of two, after which the inline buckets are emptied into the pool: none can have
/// overflown by then.
pub const FULL: u32 = 1 << 15;

/// Whether counting the value may take a histogram of the pool, or change the inline buckets.
#[inline(always)]
fn must_grow(timer: &RecordTimer, number: usize, ticks: u64) -> bool {
    let exponent = exponent(number, ticks);
    let first = timer.first_bucket.load(Ordering::Relaxed);
    let is_inside = (exponent.wrapping_sub(first) as usize) < INLINE_BUCKETS;
    if is_inside || first >= NO_BUCKET {
        return false;
    }
    match timer.histogram.load(Ordering::Relaxed).checked_sub(1) {
        Some(index) => {
            let count = &areas::histogram(index).buckets[exponent as usize % 64];
            (count.load(Ordering::Relaxed) + 1).is_multiple_of(u64::from(OFTEN))
        }
        None => true,
    }
}

/// Counts a value in one of the inline buckets or in the pool.
#[inline(always)]
fn bucket<const GROW: bool>(timer: &RecordTimer, exponent: u32) {
    let first = timer.first_bucket.load(Ordering::Relaxed);
    if let Some(count) = timer.buckets.get(exponent.wrapping_sub(first) as usize) {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    } else if GROW {
        outside(timer, exponent);
    } else if first < NO_BUCKET {
        let index = timer.histogram.load(Ordering::Relaxed).wrapping_sub(1);
        add(&areas::histogram(index).buckets[exponent as usize % 64], 1);
    }
}

/// Puts the inline buckets where the first value is, which is slow as a rule: most are below it.
#[inline(always)]
fn place(timer: &RecordTimer, exponent: u32) {
    const BELOW: u32 = INLINE_BUCKETS as u32 - 2;
    let first = exponent.saturating_sub(BELOW);
    timer.first_bucket.store(first, Ordering::Relaxed);
}

/// The timer's histogram in the pool. Where the pool is full all values are taken to be in one bucket
/// from then on: the sum of the buckets stays the number of calls.
fn pooled(timer: &RecordTimer) -> Option<&'static Histogram> {
    let known = timer.histogram.load(Ordering::Relaxed);
    if let Some(index) = known.checked_sub(1) {
        return Some(areas::histogram(index));
    }
    let Some(index) = areas::take_histogram() else {
        let first = timer.first_bucket.load(Ordering::Relaxed) % NO_BUCKET;
        timer
            .first_bucket
            .store(first + NO_BUCKET, Ordering::Relaxed);
        return None;
    };
    timer.histogram.store(index + 1, Ordering::Relaxed);
    Some(areas::histogram(index))
}

/// Moves the inline buckets so far that they have one for a value outside them; false where those in use
/// would not stay among them, or there is a histogram in the pool.
fn slide(timer: &RecordTimer, exponent: u32) -> bool {
    let first = timer.first_bucket.load(Ordering::Relaxed);
    if first >= NO_BUCKET || timer.histogram.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let counts = timer.buckets.each_ref();
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    let used = || (first..).zip(counts).filter(|&(_, count)| count != 0);
    let lowest = used().next().map_or(exponent, |(at, _)| at.min(exponent));
    let highest = used().last().map_or(exponent, |(at, _)| at.max(exponent));
    const LAST: u32 = INLINE_BUCKETS as u32 - 1;
    if highest - lowest > LAST {
        return false;
    }
    let new = first.clamp(highest.saturating_sub(LAST), lowest);
    for (at, count) in (new..).zip(&timer.buckets) {
        let old = counts.get(at.wrapping_sub(first) as usize);
        count.store(old.copied().unwrap_or(0), Ordering::Relaxed);
    }
    timer.first_bucket.store(new, Ordering::Relaxed);
    true
}

/// Counts a value outside the inline buckets.
fn outside(timer: &RecordTimer, exponent: u32) {
    if slide(timer, exponent) {
        return bucket::<false>(timer, exponent);
    }
    let Some(pooled) = pooled(timer) else {
        return;
    };
    let count = &pooled.buckets[exponent as usize % 64];
    add(count, 1);
    if count
        .load(Ordering::Relaxed)
        .is_multiple_of(u64::from(OFTEN))
    {
        center(timer, pooled);
    }
}

/// Makes the inline buckets those that have counted most.
fn center(timer: &RecordTimer, pooled: &Histogram) {
    empty(timer);
    let count = |at: usize| pooled.buckets[at].load(Ordering::Relaxed);
    let sum = |first: usize| (first..first + INLINE_BUCKETS).map(count).sum::<u64>();
    let mut best = 0;
    for first in 1..=pooled.buckets.len() - INLINE_BUCKETS {
        if sum(first) > sum(best) {
            best = first;
        }
    }
    timer.first_bucket.store(best as u32, Ordering::Relaxed);
}

/// Moves what the inline buckets have counted to the pool.
fn empty(timer: &RecordTimer) {
    let Some(pooled) = pooled(timer) else {
        return;
    };
    let first = timer.first_bucket.load(Ordering::Relaxed) as usize;
    for (offset, count) in timer.buckets.iter().enumerate() {
        let counted = count.swap(0, Ordering::Relaxed);
        add(&pooled.buckets[(first + offset) % 64], u64::from(counted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU16, AtomicU32};
    use std::vec::Vec;

    /// A timer whose inline buckets from `first` on have counted so many.
    fn timer(first: u32, counts: [u16; INLINE_BUCKETS]) -> RecordTimer {
        RecordTimer {
            sum: AtomicU64::new(0),
            min: AtomicU64::new(0),
            max: AtomicU64::new(0),
            outermost: AtomicU64::new(0),
            exclusive: AtomicU64::new(0),
            histogram: AtomicU32::new(0),
            first_bucket: AtomicU32::new(first),
            buckets: counts.map(AtomicU16::new),
        }
    }

    /// The exponents that have counted something, and how much.
    fn counted(timer: &RecordTimer) -> Vec<(u32, u16)> {
        let first = timer.first_bucket.load(Ordering::Relaxed);
        let counts = timer.buckets.iter().map(|c| c.load(Ordering::Relaxed));
        (first..).zip(counts).filter(|&(_, c)| c != 0).collect()
    }

    #[test]
    fn inline_buckets_slide_to_a_value_as_far_as_those_in_use_allow() {
        let above = timer(5, [0, 3, 0, 7, 0, 0, 0, 0]);
        outside(&above, 13);
        assert_eq!(counted(&above), [(6, 3), (8, 7), (13, 1)]);
        assert!(!slide(&above, 14));
        assert_eq!(counted(&above), [(6, 3), (8, 7), (13, 1)]);

        let below = timer(5, [0, 0, 0, 0, 0, 0, 2, 0]);
        outside(&below, 4);
        assert_eq!(counted(&below), [(4, 1), (11, 2)]);
        assert!(!slide(&below, 3));

        let unused = timer(20, [0; INLINE_BUCKETS]);
        outside(&unused, 0);
        assert_eq!(counted(&unused), [(0, 1)]);
    }

    #[test]
    fn inline_buckets_stay_beside_a_histogram_or_where_there_is_none_left() {
        let beside = timer(5, [1; INLINE_BUCKETS]);
        beside.histogram.store(1, Ordering::Relaxed);
        assert!(!slide(&beside, 4));
        assert!(!slide(&timer(NO_BUCKET + 5, [0; INLINE_BUCKETS]), 4));
    }
}
