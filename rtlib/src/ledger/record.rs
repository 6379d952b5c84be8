//! Records: what a thread has seen of a path. One writer, so plain loads and stores; readers in
//! another process go by the sequence number.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::image::SCALE_SHIFT;
use abi::schema::{Derived, MAX_COLUMNS, SCHEMA_WALL, Schema, way};
use abi::segment::{Column, FIRST_NODE, Histogram, INLINE_BUCKETS, NO_BUCKET, RecordHead};
use abi::shortage::Shortage;

use super::areas::{self, For};
use super::tags::TAGS;
use crate::arch::fence;
use crate::os::parameters;

/// What one column gets of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Amount {
    /// All of it.
    pub whole: u64,
    /// What of it is from nested probed functions.
    pub nested: u64,
}

/// What columns get of a call.
#[repr(C)]
pub struct Amounts {
    /// Which columns get something: bit n for column n. Of the others nothing was measured.
    pub known: u32,
    /// Which of those are of an outermost call: no other one of the same function encloses it. Values are of none.
    pub outermost: u32,
    /// What each gets.
    pub of: [Amount; MAX_COLUMNS],
}

/// A record for a thread and a path, for which there is a tag.
///
/// # Errors
/// There is no room or no memory for it.
pub fn make(thread: u32, tid: u32, schema: u8, path: u32, what: For) -> Result<u32, Shortage> {
    let columns = columns_of(parameters::schema(schema));
    let index = areas::take_record(what, columns, |count| TAGS.reserve(count))?;
    let record = areas::record(index);
    // There are fewer: the abi has a check of it.
    record.thread.store(thread as u16, Ordering::Relaxed);
    record.schema.store(schema, Ordering::Relaxed);
    let way = way_of(parameters::schema(schema));
    record.way.store(way, Ordering::Relaxed);
    record.tid.store(tid, Ordering::Relaxed);
    for number in 0..columns {
        areas::column(record, number)
            .min
            .store(u64::MAX, Ordering::Relaxed);
    }
    record.path.store(path, Ordering::Release);
    Ok(index)
}

/// A record with so many columns that never gets a path, and so is none of those that are read.
pub fn make_without_path(columns: usize) -> Option<&'static RecordHead> {
    let index = areas::take_record(For::Path, columns, |count| TAGS.reserve(count)).ok()?;
    Some(areas::record(index))
}

/// Which schema a record is by.
#[inline(always)]
pub fn schema(record: &RecordHead) -> u8 {
    record.schema.load(Ordering::Relaxed)
}

/// What the hand-written ways do of its calls.
#[inline(always)]
pub fn way(record: &RecordHead) -> u8 {
    record.way.load(Ordering::Relaxed)
}

/// What they do of calls by a schema.
fn way_of(schema: &Schema) -> u8 {
    /// That of nothing, which no schema has.
    const NONE: Derived = Derived::Growth(u8::MAX);
    if schema.condition.load(Ordering::Relaxed) != 0 {
        return way::COMPILED;
    }
    let columns = schema.column.each_ref().map(|rule| {
        let derived = rule.derived.load(Ordering::Relaxed);
        Derived::decode(derived).unwrap_or(NONE)
    });
    way::of(&columns[..columns_of(schema)])
}

/// How many columns a schema has.
#[inline(always)]
fn columns_of(schema: &Schema) -> usize {
    (schema.columns.load(Ordering::Relaxed) as usize).min(MAX_COLUMNS)
}

/// The function that a record is of.
pub fn function(record: &RecordHead) -> u32 {
    let path = areas::node(record.path.load(Ordering::Relaxed));
    // Above the number is the bit that tells the end of a path.
    path.key.load(Ordering::Relaxed) as u32
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

/// Adds a call that returned, or left by a tail call.
pub fn close(record: &RecordHead, amounts: &Amounts, by_tail_call: bool) {
    let closed = begin_closing(record, by_tail_call);
    add_amounts::<true>(record, amounts, is_full(closed));
    end(record);
}

/// The same where it takes no more memory; false where nothing has been done.
#[inline(always)]
pub fn try_close(record: &RecordHead, amounts: &Amounts, by_tail_call: bool) -> bool {
    let closed = record.closed.load(Ordering::Relaxed);
    if is_full(closed) || must_grow(record, amounts) {
        return false;
    }
    begin_closing(record, by_tail_call);
    add_amounts::<false>(record, amounts, false);
    end(record);
    true
}

/// The same where there is nothing but the time.
#[inline(always)]
pub fn try_close_timed(
    record: &RecordHead,
    amount: Amount,
    is_outermost: bool,
    by_tail_call: bool,
) -> bool {
    let schema = parameters::schema(SCHEMA_WALL);
    let exponent = exponent(schema, 0, amount.whole);
    let column = areas::column(record, 0);
    let closed = record.closed.load(Ordering::Relaxed);
    if is_full(closed) || column_must_grow(column, exponent) {
        return false;
    }
    begin_closing(record, by_tail_call);
    add_amount::<false>(column, amount, exponent, is_outermost);
    end(record);
    true
}

/// Begins to write, with the call counted as one that has ended; how many had before.
#[inline(always)]
fn begin_closing(record: &RecordHead, by_tail_call: bool) -> u64 {
    begin(record);
    let closed = record.closed.load(Ordering::Relaxed);
    add(&record.closed, 1);
    if by_tail_call {
        add(&record.tail, 1);
    }
    closed
}

/// Adds what is known of a call when it begins. Without `GROW` it takes no more memory, which it must not have to.
#[inline(always)]
pub fn add_entered<const GROW: bool>(record: &RecordHead, amounts: &Amounts) {
    begin(record);
    let is_full = is_full(record.entered.load(Ordering::Relaxed));
    add_amounts::<GROW>(record, amounts, is_full);
    end(record);
}

/// Whether that may take more memory.
#[inline(always)]
pub fn must_grow_to_enter(record: &RecordHead, amounts: &Amounts) -> bool {
    amounts.known != 0
        && (is_full(record.entered.load(Ordering::Relaxed)) || must_grow(record, amounts))
}

/// Whether the inline buckets are to be emptied before the next value.
#[inline(always)]
fn is_full(calls: u64) -> bool {
    calls != 0 && calls.is_multiple_of(u64::from(FULL))
}

/// Whether adding may take histograms of the pool, or change inline buckets.
#[inline(always)]
fn must_grow(record: &RecordHead, amounts: &Amounts) -> bool {
    let schema = parameters::schema(schema(record));
    (0..columns_of(schema)).any(|number| {
        amounts.known & 1 << number != 0
            && column_must_grow(
                areas::column(record, number),
                exponent(schema, number, amounts.of[number % MAX_COLUMNS].whole),
            )
    })
}

#[inline(always)]
fn add_amounts<const GROW: bool>(record: &RecordHead, amounts: &Amounts, is_full: bool) {
    let schema = parameters::schema(schema(record));
    for number in 0..columns_of(schema) {
        let column = areas::column(record, number);
        if GROW && is_full {
            empty(column);
        }
        if amounts.known & 1 << number == 0 {
            continue;
        }
        let amount = amounts.of[number % MAX_COLUMNS];
        let exponent = exponent(schema, number, amount.whole);
        add_amount::<GROW>(
            column,
            amount,
            exponent,
            amounts.outermost & 1 << number != 0,
        );
    }
}

#[inline(always)]
fn add_amount<const GROW: bool>(
    column: &Column,
    Amount { whole, nested }: Amount,
    exponent: u32,
    is_outermost: bool,
) {
    add(&column.sum, whole);
    add(&column.exclusive, whole.wrapping_sub(nested));
    if is_outermost {
        add(&column.outermost, whole);
    }
    let least = column.min.load(Ordering::Relaxed);
    if least == u64::MAX {
        place(column, exponent);
    }
    if whole < least {
        column.min.store(whole, Ordering::Relaxed);
    }
    if whole > column.max.load(Ordering::Relaxed) {
        column.max.store(whole, Ordering::Relaxed);
    }
    bucket::<GROW>(column, exponent);
}

/// k with the number in [2^k, 2^(k+1)) of the column's unit; 0 for the number 0.
#[inline(always)]
fn exponent(schema: &Schema, column: usize, whole: u64) -> u32 {
    let scale = schema.column[column % MAX_COLUMNS]
        .scale
        .load(Ordering::Relaxed);
    let value = ((u128::from(whole) * u128::from(scale)) >> SCALE_SHIFT) as u64;
    63 - (value | 1).leading_zeros()
}

/// Values in one bucket outside the inline ones, a power of two, after which it is seen whether those
/// are the right ones.
pub const OFTEN: u32 = 64;
/// Closed calls, a power of two, after which the inline buckets are emptied into the pool: none can have
/// overflown by then.
pub const FULL: u32 = 1 << 15;

/// Whether counting a value with this exponent may take a histogram of the pool, or change the inline buckets.
#[inline(always)]
fn column_must_grow(column: &Column, exponent: u32) -> bool {
    let first = column.first_bucket.load(Ordering::Relaxed);
    let is_inside = (exponent.wrapping_sub(first) as usize) < INLINE_BUCKETS;
    let is_first = column.min.load(Ordering::Relaxed) == u64::MAX;
    if is_first || is_inside || first >= NO_BUCKET {
        return false;
    }
    match column.histogram.load(Ordering::Relaxed).checked_sub(1) {
        Some(index) => {
            let count = &areas::histogram(index).buckets[exponent as usize % 64];
            (count.load(Ordering::Relaxed) + 1).is_multiple_of(u64::from(OFTEN))
        }
        None => true,
    }
}

/// Counts a value in one of the inline buckets or in the pool.
#[inline(always)]
fn bucket<const GROW: bool>(column: &Column, exponent: u32) {
    let first = column.first_bucket.load(Ordering::Relaxed);
    if let Some(count) = column.buckets.get(exponent.wrapping_sub(first) as usize) {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    } else if GROW {
        outside(column, exponent);
    } else if first < NO_BUCKET {
        let index = column.histogram.load(Ordering::Relaxed).wrapping_sub(1);
        add(&areas::histogram(index).buckets[exponent as usize % 64], 1);
    }
}

/// Puts the inline buckets where the first value is, which is slow as a rule: most are below it.
#[inline(always)]
fn place(column: &Column, exponent: u32) {
    const BELOW: u32 = INLINE_BUCKETS as u32 - 2;
    let first = exponent.saturating_sub(BELOW);
    column.first_bucket.store(first, Ordering::Relaxed);
}

/// A column's histogram in the pool. Where the pool is full all values are taken to be in one bucket
/// from then on: the sum of the buckets stays the number of calls.
fn pooled(column: &Column) -> Option<&'static Histogram> {
    let known = column.histogram.load(Ordering::Relaxed);
    if let Some(index) = known.checked_sub(1) {
        return Some(areas::histogram(index));
    }
    let Ok(index) = areas::take_histogram() else {
        let first = column.first_bucket.load(Ordering::Relaxed) % NO_BUCKET;
        column
            .first_bucket
            .store(first + NO_BUCKET, Ordering::Relaxed);
        return None;
    };
    column.histogram.store(index + 1, Ordering::Relaxed);
    Some(areas::histogram(index))
}

/// Moves the inline buckets so far that they have one for a value outside them; false where those in use
/// would not stay among them, or there is a histogram in the pool.
fn slide(column: &Column, exponent: u32) -> bool {
    let first = column.first_bucket.load(Ordering::Relaxed);
    if first >= NO_BUCKET || column.histogram.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let counts = column.buckets.each_ref();
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    let used = || (first..).zip(counts).filter(|&(_, count)| count != 0);
    let lowest = used().next().map_or(exponent, |(at, _)| at.min(exponent));
    let highest = used().last().map_or(exponent, |(at, _)| at.max(exponent));
    const LAST: u32 = INLINE_BUCKETS as u32 - 1;
    if highest - lowest > LAST {
        return false;
    }
    let new = first.clamp(highest.saturating_sub(LAST), lowest);
    for (at, count) in (new..).zip(&column.buckets) {
        let old = counts.get(at.wrapping_sub(first) as usize);
        count.store(old.copied().unwrap_or(0), Ordering::Relaxed);
    }
    column.first_bucket.store(new, Ordering::Relaxed);
    true
}

/// Counts a value outside the inline buckets.
fn outside(column: &Column, exponent: u32) {
    if slide(column, exponent) {
        return bucket::<false>(column, exponent);
    }
    let Some(pooled) = pooled(column) else {
        return;
    };
    let count = &pooled.buckets[exponent as usize % 64];
    add(count, 1);
    if count
        .load(Ordering::Relaxed)
        .is_multiple_of(u64::from(OFTEN))
    {
        center(column, pooled);
    }
}

/// Makes the inline buckets those that have counted most.
fn center(column: &Column, pooled: &Histogram) {
    empty(column);
    let count = |at: usize| pooled.buckets[at].load(Ordering::Relaxed);
    let sum = |first: usize| (first..first + INLINE_BUCKETS).map(count).sum::<u64>();
    let mut best = 0;
    for first in 1..=pooled.buckets.len() - INLINE_BUCKETS {
        if sum(first) > sum(best) {
            best = first;
        }
    }
    column.first_bucket.store(best as u32, Ordering::Relaxed);
}

/// Moves what the inline buckets have counted to the pool.
fn empty(column: &Column) {
    let Some(pooled) = pooled(column) else {
        return;
    };
    let first = column.first_bucket.load(Ordering::Relaxed) as usize;
    for (offset, count) in column.buckets.iter().enumerate() {
        let counted = count.swap(0, Ordering::Relaxed);
        add(&pooled.buckets[(first + offset) % 64], u64::from(counted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU16, AtomicU32};
    use std::vec::Vec;

    /// A column whose inline buckets from `first` on have counted so many.
    fn column(first: u32, counts: [u16; INLINE_BUCKETS]) -> Column {
        Column {
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
    fn counted(column: &Column) -> Vec<(u32, u16)> {
        let first = column.first_bucket.load(Ordering::Relaxed);
        let counts = column.buckets.iter().map(|c| c.load(Ordering::Relaxed));
        (first..).zip(counts).filter(|&(_, c)| c != 0).collect()
    }

    #[test]
    fn inline_buckets_slide_to_a_value_as_far_as_those_in_use_allow() {
        let above = column(5, [0, 3, 0, 7, 0, 0, 0, 0]);
        outside(&above, 13);
        assert_eq!(counted(&above), [(6, 3), (8, 7), (13, 1)]);
        assert!(!slide(&above, 14));
        assert_eq!(counted(&above), [(6, 3), (8, 7), (13, 1)]);

        let below = column(5, [0, 0, 0, 0, 0, 0, 2, 0]);
        outside(&below, 4);
        assert_eq!(counted(&below), [(4, 1), (11, 2)]);
        assert!(!slide(&below, 3));

        let unused = column(20, [0; INLINE_BUCKETS]);
        outside(&unused, 0);
        assert_eq!(counted(&unused), [(0, 1)]);
    }

    #[test]
    fn inline_buckets_stay_beside_a_histogram_or_where_there_is_none_left() {
        let beside = column(5, [1; INLINE_BUCKETS]);
        beside.histogram.store(1, Ordering::Relaxed);
        assert!(!slide(&beside, 4));
        assert!(!slide(&column(NO_BUCKET + 5, [0; INLINE_BUCKETS]), 4));
    }
}
