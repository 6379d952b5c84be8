//! Records: what a thread has seen of a path. One writer, so plain loads and stores; readers in
//! another process go by the sequence number.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use abi::MAX_TIMERS;
use abi::segment::{FIRST_NODE, INLINE_BUCKETS, RecordHead, RecordTimer};

use crate::segment;
use crate::state::ipath_parameters;

/// A record for a thread and a path.
pub fn make(thread: u32, tid: u32, function: u32, path: u32) -> Option<u32> {
    let index = segment::take_record()?;
    let record = segment::record(index);
    record.thread.store(thread, Ordering::Relaxed);
    record.tid.store(u64::from(tid), Ordering::Relaxed);
    record.function.store(function, Ordering::Relaxed);
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
pub fn enter(index: u32) {
    add(&segment::record(index).entered, 1);
}

/// Counts a call that was left without a return.
#[inline(always)]
pub fn unwind(index: u32) {
    add(&segment::record(index).unwound, 1);
}

/// The return address of the calls that a record counts; `None` where it counts those of many call
/// sites.
pub fn call_site(index: u32) -> Option<u64> {
    let path = segment::node(segment::record(index).path.load(Ordering::Relaxed));
    let caller = path.parent.load(Ordering::Relaxed);
    (caller >= FIRST_NODE).then(|| segment::node(caller).key.load(Ordering::Relaxed))
}

#[inline(always)]
fn begin(record: &RecordHead) {
    let sequence = record.sequence.load(Ordering::Relaxed);
    record
        .sequence
        .store(sequence.wrapping_add(1), Ordering::Relaxed);
    // x86 keeps stores in order; only the compiler must be told.
    compiler_fence(Ordering::SeqCst);
}

#[inline(always)]
fn end(record: &RecordHead) {
    compiler_fence(Ordering::SeqCst);
    let sequence = record.sequence.load(Ordering::Relaxed);
    record
        .sequence
        .store(sequence.wrapping_add(1), Ordering::Relaxed);
}

/// Adds a call that returned: `ticks` in all, `nested` of them in probed functions it called,
/// `outermost` unless a call of the same function encloses it.
#[inline(always)]
pub fn close(index: u32, ticks: u64, nested: u64, outermost: bool) {
    let record = segment::record(index);
    begin(record);
    let is_first = record.closed.load(Ordering::Relaxed) == 0;
    add(&record.closed, 1);
    let timers = ipath_parameters.timers.load(Ordering::Relaxed) as usize;
    for number in 0..timers.min(MAX_TIMERS) {
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
        bucket(timer, exponent(number, ticks), is_first);
    }
    end(record);
}

#[inline(always)]
fn timer(record: &RecordHead, number: usize) -> &RecordTimer {
    let head: *const RecordHead = record;
    // SAFETY: a record is its head and `timers` timers behind it, by the segment's layout.
    unsafe {
        &*head
            .byte_add(size_of::<RecordHead>() + number * size_of::<RecordTimer>())
            .cast()
    }
}

/// k with the value in [2^k, 2^(k+1)) of the timer's unit; 0 for the value 0.
#[inline(always)]
fn exponent(number: usize, ticks: u64) -> u32 {
    let scale = &ipath_parameters.scale[number];
    let (mult, shift) = (
        scale.mult.load(Ordering::Relaxed),
        scale.shift.load(Ordering::Relaxed),
    );
    let value = ((u128::from(ticks) * u128::from(mult)) >> (shift & 127)) as u64;
    63 - (value | 1).leading_zeros()
}

#[inline(always)]
fn bucket(timer: &RecordTimer, exponent: u32, is_first: bool) {
    if is_first {
        // The first value and a bucket on either side of it: most paths never leave them.
        timer
            .first_bucket
            .store(exponent.saturating_sub(1), Ordering::Relaxed);
    }
    let pooled = timer.histogram.load(Ordering::Relaxed);
    if pooled != 0 {
        add(
            &segment::histogram(pooled - 1).buckets[exponent as usize % 64],
            1,
        );
        return;
    }
    let offset = exponent.wrapping_sub(timer.first_bucket.load(Ordering::Relaxed)) as usize;
    match timer.buckets.get(offset) {
        Some(count) if count.load(Ordering::Relaxed) != u32::MAX => {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        _ => outgrow(timer, exponent),
    }
}

/// Moves the histogram to the pool. Where that is full the value is kept in the nearest inline
/// bucket: the sum of the buckets stays the number of calls.
#[cold]
#[inline(never)]
fn outgrow(timer: &RecordTimer, exponent: u32) {
    let first = timer.first_bucket.load(Ordering::Relaxed);
    let Some(index) = segment::take_histogram() else {
        let nearest = if exponent < first {
            0
        } else {
            INLINE_BUCKETS - 1
        };
        let count: &AtomicU32 = &timer.buckets[nearest];
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        return;
    };
    let pooled = segment::histogram(index);
    for (offset, count) in timer.buckets.iter().enumerate() {
        let at = (first as usize + offset) % 64;
        add(
            &pooled.buckets[at],
            u64::from(count.load(Ordering::Relaxed)),
        );
    }
    add(&pooled.buckets[exponent as usize % 64], 1);
    timer.histogram.store(index + 1, Ordering::Relaxed);
}
