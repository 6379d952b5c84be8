//! Records: the measurements of a path by a thread. There is a single writer, so plain loads and
//! stores suffice. Readers in another process check the sequence number.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::apart::Part;
use abi::image::SCALE_SHIFT;
use abi::schema::{Derived, MAX_COLUMNS, SCHEMA_WALL, Schema, way};
use abi::segment::{
    Column, FIRST_NODE, Histogram, INLINE_BUCKETS, NO_BUCKET, RecordHead, address_and_module,
    caller_of_site, is_apart, number_of_path,
};
use abi::shortage::Shortage;

use super::areas::{self, For};
use super::tags::TAGS;
use crate::arch::fence;
use crate::os::parameters;
use crate::os::shared;

/// The amount of a call for one column.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Amount {
    /// The whole amount, in the column's unit.
    pub whole: u64,
    /// The part of `whole` from nested probed functions.
    pub nested: u64,
}

/// The amounts of a call for the columns of its record.
#[repr(C)]
pub struct Amounts {
    /// The columns with an amount: bit n for column n. Nothing was measured for the others.
    pub known: u32,
    /// The columns whose amount belongs to an outermost call, which no other call of the same
    /// function encloses. Never set for values.
    pub outermost: u32,
    /// The amounts by column.
    pub of: [Amount; MAX_COLUMNS],
}

/// Creates the record of a thread and a path, with memory for its tag. Returns the record's number.
///
/// # Errors
/// There is no room or no memory for it.
pub fn make(thread: u32, tid: u32, schema: u8, path: u32, what: For) -> Result<u32, Shortage> {
    let columns = columns_of(parameters::schema(schema));
    let index = areas::take_record(what, columns, |count| TAGS.reserve(count))?;
    let record = areas::record(index);
    // The number fits, as the abi crate checks.
    record.thread.store(thread as u16, Ordering::Relaxed);
    record.schema.store(schema, Ordering::Relaxed);
    record.way.store(way_for(schema, path), Ordering::Relaxed);
    record.tid.store(tid, Ordering::Relaxed);
    for number in 0..columns {
        areas::column(record, number)
            .min
            .store(u64::MAX, Ordering::Relaxed);
    }
    record.path.store(path, Ordering::Release);
    Ok(index)
}

/// Creates a record without a path, which is never read. `None` if there is no memory.
pub fn make_without_path(columns: usize) -> Option<&'static RecordHead> {
    let index = areas::take_record(For::Path, columns, |count| TAGS.reserve(count)).ok()?;
    Some(areas::record(index))
}

/// The number of a record's schema.
#[inline(always)]
pub fn schema(record: &RecordHead) -> u8 {
    record.schema.load(Ordering::Relaxed)
}

/// The part of a record's calls that the assembly fast path measures: one of [`abi::schema::way`].
#[inline(always)]
pub fn way(record: &RecordHead) -> u8 {
    record.way.load(Ordering::Relaxed)
}

/// The part of calls that the assembly fast path measures, by their schema and the node of their
/// path.
fn way_for(schema: u8, path: u32) -> u8 {
    let schema = parameters::schema(schema);
    let is_begin =
        (schema.divides_at_entry() || shared::keeps_phases()) && innermost_part_of(path).is_none();
    let function = areas::node(path).key.load(Ordering::Relaxed) as u32;
    let is_compiled = schema.divides_at_exit() || schema.keeps_single();
    if is_begin || is_compiled || parameters::is_phase(function) {
        return way::COMPILED;
    }
    way_of(schema)
}

/// The part of calls that the assembly fast path measures, by their schema.
fn way_of(schema: &Schema) -> u8 {
    /// A placeholder that equals no column of a schema.
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

/// The number of columns of a schema.
#[inline(always)]
fn columns_of(schema: &Schema) -> usize {
    (schema.columns.load(Ordering::Relaxed) as usize).min(MAX_COLUMNS)
}

/// The id of a record's function.
pub fn function(record: &RecordHead) -> u32 {
    let path = areas::node(record.path.load(Ordering::Relaxed));
    // The bit above the number marks the end of a path.
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

/// Counts a call that has come to the record `from` in `to` instead, which belongs to the thread.
#[inline(always)]
pub fn move_call(from: &RecordHead, to: &RecordHead) {
    add(&to.entered, 1);
    // Other threads take calls away, too.
    from.moved_out.fetch_add(1, Ordering::Relaxed);
}

/// True if the innermost call site of the record's path is the number of a path inside the
/// function.
#[inline(always)]
pub fn has_path_site(record: &RecordHead) -> bool {
    let path = areas::node(record.path.load(Ordering::Relaxed));
    let caller = path.parent.load(Ordering::Relaxed);
    let key = || areas::node(caller).key.load(Ordering::Relaxed);
    caller >= FIRST_NODE && number_of_path(key()).is_some()
}

/// Counts a call that was left without a return.
#[inline(always)]
pub fn unwind(record: &RecordHead) {
    add(&record.unwound, 1);
}

/// The node of the record's path.
#[inline(always)]
pub fn path(record: &RecordHead) -> u32 {
    record.path.load(Ordering::Relaxed)
}

/// The return address of the calls in a record. `None` if the record's path has no call site, like
/// the overflow path of a function and paths of measured functions only. The module in that place
/// may be another one by now.
pub fn return_address(record: &RecordHead) -> Option<u64> {
    let path = areas::node(record.path.load(Ordering::Relaxed));
    let mut caller = path.parent.load(Ordering::Relaxed);
    while caller >= FIRST_NODE {
        let site = areas::node(caller);
        let key = site.key.load(Ordering::Relaxed);
        if caller_of_site(key).is_some() {
            break;
        }
        if !is_apart(key) {
            return Some(address_and_module(key).0);
        }
        caller = site.parent.load(Ordering::Relaxed);
    }
    None
}

/// The innermost site of the record's path, if it is a part of the path ([`abi::apart`]).
#[inline(always)]
pub fn innermost_part(record: &RecordHead) -> Option<u64> {
    innermost_part_of(record.path.load(Ordering::Relaxed))
}

/// The innermost site of the path that ends in the node `path`, if it is a part.
#[inline(always)]
fn innermost_part_of(path: u32) -> Option<u64> {
    let caller = areas::node(path).parent.load(Ordering::Relaxed);
    if caller < FIRST_NODE {
        return None;
    }
    Some(areas::node(caller).key.load(Ordering::Relaxed)).filter(|&site| is_apart(site))
}

/// The phase to which the record's calls belong. `None` if they are not kept apart by phase.
pub fn phase(record: &RecordHead) -> Option<u32> {
    let path = areas::node(record.path.load(Ordering::Relaxed));
    let mut caller = path.parent.load(Ordering::Relaxed);
    while caller >= FIRST_NODE {
        let site = areas::node(caller);
        match Part::decode(site.key.load(Ordering::Relaxed))? {
            Part::Phase(index) => return Some(index),
            _ => caller = site.parent.load(Ordering::Relaxed),
        }
    }
    None
}

/// Starts writing to a record: makes its sequence number odd.
#[inline(always)]
fn begin(record: &RecordHead) {
    let sequence = record.sequence.load(Ordering::Relaxed);
    record
        .sequence
        .store(sequence.wrapping_add(1), Ordering::Relaxed);
    fence::stores_in_order();
}

/// Ends writing to a record: makes its sequence number even.
#[inline(always)]
fn end(record: &RecordHead) {
    fence::stores_in_order();
    let sequence = record.sequence.load(Ordering::Relaxed);
    record
        .sequence
        .store(sequence.wrapping_add(1), Ordering::Relaxed);
}

/// Adds a call that returned or left by a tail call.
pub fn close(record: &RecordHead, amounts: &Amounts, by_tail_call: bool) {
    let closed = begin_closing(record, by_tail_call);
    add_amounts::<true>(record, amounts, is_full(closed));
    end(record);
}

/// Adds a call as [`close`] does, unless that needs more memory. Then returns false and has no
/// effect.
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

/// Adds a call as [`try_close`] does, for a schema that contains only the time.
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

/// Starts writing and counts the end of a call. Returns the number of earlier ends.
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

/// Adds the amounts that are known when a call begins. Without `GROW`, the caller guarantees that
/// no memory is needed.
#[inline(always)]
pub fn add_entered<const GROW: bool>(record: &RecordHead, amounts: &Amounts) {
    begin(record);
    let is_full = is_full(record.entered.load(Ordering::Relaxed));
    add_amounts::<GROW>(record, amounts, is_full);
    end(record);
}

/// True if [`add_entered`] may need more memory.
#[inline(always)]
pub fn must_grow_to_enter(record: &RecordHead, amounts: &Amounts) -> bool {
    amounts.known != 0
        && (is_full(record.entered.load(Ordering::Relaxed)) || must_grow(record, amounts))
}

/// True if the inline buckets must be emptied before the next value, after this number of calls.
#[inline(always)]
fn is_full(calls: u64) -> bool {
    calls != 0 && calls.is_multiple_of(u64::from(FULL))
}

/// True if adding the amounts may need a histogram or a change of inline buckets.
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

/// Adds the known amounts to the columns of a record. With `GROW`, empties the inline buckets
/// before if `is_full`. Without `GROW`, no memory is needed.
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

/// Adds an amount to a column. Its value in the column's unit has this exponent.
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

/// The `k` for which the number in the column's unit is in [2^k, 2^(k+1)); 0 for the number 0.
#[inline(always)]
fn exponent(schema: &Schema, column: usize, whole: u64) -> u32 {
    let scale = schema.column[column % MAX_COLUMNS]
        .scale
        .load(Ordering::Relaxed);
    let value = ((u128::from(whole) * u128::from(scale)) >> SCALE_SHIFT) as u64;
    63 - (value | 1).leading_zeros()
}

/// The number of values in a bucket outside the inline ones, a power of two, after which the choice
/// of inline buckets is reviewed.
pub const OFTEN: u32 = 64;
/// The number of closed calls, a power of two, after which the inline buckets are emptied into the
/// pool. They cannot have overflowed by then.
pub const FULL: u32 = 1 << 15;

/// True if counting a value with this exponent may need a histogram of the pool or a change of
/// inline buckets.
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

/// Counts a value in an inline bucket or in the pool. Without `GROW`, the column has a histogram in
/// the pool if the value is outside the inline buckets, unless the pool was full.
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

/// Places the inline buckets around the first value, which is usually a slow one: most later values
/// are below it.
#[inline(always)]
fn place(column: &Column, exponent: u32) {
    const BELOW: u32 = INLINE_BUCKETS as u32 - 2;
    let first = exponent.saturating_sub(BELOW);
    column.first_bucket.store(first, Ordering::Relaxed);
}

/// The column's histogram in the pool, allocated if necessary. `None` if the pool is full: all
/// values then count in one bucket, so that the sum of the buckets stays the number of calls.
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

/// Moves the inline buckets so that they include the value's exponent. False if that would lose
/// used buckets, or if there is a histogram in the pool.
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

/// Counts a value outside the inline buckets: moves them to include it, or counts it in the pool.
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

/// Moves the inline buckets to the range with the most values.
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

/// Moves the counts of the inline buckets to the pool. Does nothing if the pool is full.
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

    /// A column with these counts in its inline buckets from exponent `first` on.
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

    /// The exponents with counts, and the counts.
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
