//! Records as one consistent reading each.

use std::collections::BTreeMap;
use std::collections::btree_map::{Entry, OccupiedEntry};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

use abi::schema::Derived;
use abi::segment::{AREA_RECORDS, Column, NO_BUCKET, NODE_IS_PATH, ROOT_OVERFLOW};

use crate::segment::{ColumnDoc, Document, SchemaDoc, Segment};

#[cfg(test)]
mod tests;

/// What a record says.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) path: u32,
    pub(super) function: u32,
    pub(super) tid: u32,
    pub(super) entered: u64,
    pub(super) closed: u64,
    pub(super) unwound: u64,
    /// Of those closed.
    pub(super) tail: u64,
    /// Those that were counted at their entry alone: nothing is known of how they ended.
    alone: u64,
    /// True if some of the calls were measured from their entry to their end.
    pub(super) sees_ends: bool,
    /// One for each metric but the count.
    pub(super) metrics: Vec<RawMetric>,
    /// Which schema it is by.
    schema: u8,
}

/// A metric of a record: what is 0 or more, and what is less.
#[derive(Clone, Debug, Default)]
pub(super) struct RawMetric {
    pub(super) positive: RawColumn,
    pub(super) negative: RawColumn,
}

impl RawMetric {
    fn add(&mut self, other: &Self) {
        self.positive.add(&other.positive);
        self.negative.add(&other.negative);
    }
}

/// One column of a record, as it is read; the histogram in its unit.
#[derive(Clone, Debug, Default)]
pub(super) struct RawColumn {
    pub(super) sum: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) outermost: u64,
    /// Less than 0 where what measuring takes has been taken to be more than it was.
    pub(super) exclusive: i64,
    pub(super) histogram: BTreeMap<u8, u64>,
}

impl RawColumn {
    /// Calls that its histogram holds.
    pub(super) fn held(&self) -> u64 {
        self.histogram
            .values()
            .fold(0, |sum, &n| sum.saturating_add(n))
    }

    fn add(&mut self, other: &Self) {
        if other.held() > 0 {
            self.min = match self.held() {
                0 => other.min,
                _ => self.min.min(other.min),
            };
            self.max = self.max.max(other.max);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.outermost = self.outermost.saturating_add(other.outermost);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
        for (&k, &n) in &other.histogram {
            let bucket = self.histogram.entry(k).or_default();
            *bucket = bucket.saturating_add(n);
        }
    }

    /// Adds the calls during which the thread has not been switched out: their CPU time is their time, and nothing is left
    /// of the one without the other. There are no more than are `closed`.
    fn add_steady(&mut self, steady: &Self, rule: &ColumnDoc, closed: u64) {
        match Derived::decode(rule.derived) {
            Some(Derived::Rest(..)) => self.add(&Self {
                histogram: BTreeMap::from([(0, steady.held())]),
                ..Self::default()
            }),
            _ => self.add(steady),
        }
        if self.held() > closed {
            self.hold(closed);
        }
    }

    /// Makes those `closed`, by the bucket that has most: there one call changes least.
    fn hold(&mut self, closed: u64) {
        while let Some(surplus) = self.held().checked_sub(closed).filter(|&n| n != 0) {
            let Some(mut fullest) = fullest(&mut self.histogram) else {
                return;
            };
            let rest = fullest.get().saturating_sub(surplus);
            if rest == 0 {
                fullest.remove();
            } else {
                fullest.insert(rest);
            }
        }
        let missing = closed.saturating_sub(self.held());
        if missing == 0 {
            return;
        }
        match fullest(&mut self.histogram) {
            Some(mut fullest) => *fullest.get_mut() += missing,
            None => drop(
                self.histogram
                    .insert(self.sum.checked_ilog2().unwrap_or(0) as u8, missing),
            ),
        }
    }
}

/// The bucket that has most.
fn fullest(histogram: &mut BTreeMap<u8, u64>) -> Option<OccupiedEntry<'_, u8, u64>> {
    let (&bucket, _) = histogram.iter().max_by_key(|&(_, &n)| n)?;
    match histogram.entry(bucket) {
        Entry::Occupied(place) => Some(place),
        Entry::Vacant(_) => None,
    }
}

impl Raw {
    pub(super) fn empty(metrics: usize) -> Self {
        let metrics = vec![RawMetric::default(); metrics];
        Self {
            path: 0,
            function: 0,
            tid: 0,
            entered: 0,
            closed: 0,
            unwound: 0,
            tail: 0,
            alone: 0,
            sees_ends: false,
            metrics,
            schema: 0,
        }
    }

    /// Activations that have not ended, as far as that would be known.
    pub(super) fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.closed)
            .saturating_sub(self.unwound)
            .saturating_sub(self.alone)
    }

    /// Makes all of it tell of the same calls, and finds those of which no end is seen.
    fn settle(&mut self, document: &Document) {
        self.mend(document);
        let schema = document.schemas.get(usize::from(self.schema));
        self.sees_ends = schema.is_none_or(SchemaDoc::needs_exits);
        if !self.sees_ends {
            self.alone = self.open();
        }
    }

    /// A writer that stands still in the middle of a call's end has counted that call in one place and not yet in
    /// another: its thread does not run, or has been killed there.
    fn mend(&mut self, document: &Document) {
        let Some(schema) = document.schemas.get(usize::from(self.schema)) else {
            return;
        };
        // Of each call there is the time; the other columns may have nothing of one.
        let of_all = schema.columns.iter().filter(|column| column.is_of_all());
        let of_all = of_all.filter_map(|column| document.metric_of(column));
        let of_all: Vec<usize> = of_all.collect();
        let held = |metric: &usize| Some(self.metrics.get(*metric)?.positive.held());
        let (Some(least), Some(most)) = (
            of_all.iter().filter_map(held).min(),
            of_all.iter().filter_map(held).max(),
        ) else {
            return;
        };
        if least == self.closed && most == self.closed {
            return;
        }
        // The one call is still open, or has just ended, whichever all histograms can be made to say. Where more
        // than one is missing, the writer was moving buckets.
        if least.abs_diff(self.closed) <= 1 {
            self.closed = least;
        }
        let closed = self.closed;
        for metric in of_all {
            if let Some(metric) = self.metrics.get_mut(metric) {
                metric.positive.hold(closed);
            }
        }
        let ended = self.closed.saturating_add(self.unwound);
        self.entered = self.entered.max(ended);
        self.tail = self.tail.min(self.closed);
    }

    /// Adds another record of the same path: another thread's, or by another schema.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.metrics.iter_mut().zip(&other.metrics) {
            sum.add(more);
        }
        self.entered = self.entered.saturating_add(other.entered);
        self.closed = self.closed.saturating_add(other.closed);
        self.unwound = self.unwound.saturating_add(other.unwound);
        self.tail = self.tail.saturating_add(other.tail);
        self.alone = self.alone.saturating_add(other.alone);
        self.sees_ends |= other.sees_ends;
    }
}

/// Function, path and thread, that where threads are kept apart.
pub(super) type Key = (u32, u32, Option<u32>);

/// Stands for all the paths of a function that there is no room for.
pub(super) const SHARED: u32 = 0;

/// Every record in use, those of one path added up. `heirs` are functions that count for others of another id.
pub(super) fn merged(
    segment: &Segment,
    document: &Document,
    heirs: &BTreeMap<u32, u32>,
) -> BTreeMap<Key, Raw> {
    let mut merged = BTreeMap::new();
    // Where the ends of paths to one function under two ids are the same caller's, the first is the one.
    let mut ends: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for mut raw in read_all(segment, document) {
        let parent = segment.node(raw.path).map(|leaf| leaf.parent.load(Relaxed));
        let is_shared = parent == Some(ROOT_OVERFLOW);
        if !heirs.is_empty() {
            raw.function = heirs.get(&raw.function).copied().unwrap_or(raw.function);
            let end = ends.entry((raw.function, parent.unwrap_or_default()));
            raw.path = *end.or_insert(raw.path);
        }
        let path = if is_shared { SHARED } else { raw.path };
        add_to(
            &mut merged,
            (raw.function, path, document.per_thread.then_some(raw.tid)),
            raw,
        );
    }
    merged
}

fn add_to(merged: &mut BTreeMap<Key, Raw>, key: Key, raw: Raw) {
    match merged.entry(key) {
        Entry::Vacant(place) => drop(place.insert(raw)),
        Entry::Occupied(mut sum) => sum.get_mut().add(&raw),
    }
}

/// Frames of all the paths of a profile. The tree holds far more: of a recursion as deep as a stack can be,
/// each call has a path as long as it is deep, and one node more than the call before it.
const MOST_FRAMES: u64 = 1 << 24;

/// The same with no more paths than a profile has room for, those that were seen first. The further ones of
/// a function share one.
pub(super) fn within_reason(segment: &Segment, merged: BTreeMap<Key, Raw>) -> BTreeMap<Key, Raw> {
    let depth = |path| {
        segment
            .node(path)
            .map_or(0, |leaf| leaf.depth.load(Relaxed))
    };
    let mut by_age: Vec<(Key, Raw)> = merged.into_iter().collect();
    by_age.sort_by_key(|(key, _)| key.1);
    let mut frames = 0u64;
    let mut kept = BTreeMap::new();
    for ((function, path, thread), raw) in by_age {
        frames += u64::from(depth(path));
        let path = if frames > MOST_FRAMES { SHARED } else { path };
        add_to(&mut kept, (function, path, thread), raw);
    }
    kept
}

/// Every record in use.
fn read_all(segment: &Segment, document: &Document) -> Vec<Raw> {
    let header = segment.header();
    let used = header.records_used.load(Acquire);
    // The target can write to the header at any time: no more is read than there is memory for.
    let used = segment.used(AREA_RECORDS, used);
    let mut patience = Patience::default();
    (0..used)
        .take_while(|&index| segment.record(index).is_some())
        .filter_map(|index| read(segment, document, index, &mut patience))
        .collect()
}

/// How long writers are waited for that stand still while they write, in one reading of all records.
struct Patience {
    pauses: u32,
}

impl Default for Patience {
    fn default() -> Self {
        /// Enough for a thread that waits for a processor, as a rule.
        const PAUSES: u32 = 50;
        Self { pauses: PAUSES }
    }
}

impl Patience {
    /// Waits a little; false where that has been done often enough.
    fn wait(&mut self) -> bool {
        const PAUSE: Duration = Duration::from_millis(2);
        let Some(left) = self.pauses.checked_sub(1) else {
            return false;
        };
        self.pauses = left;
        std::thread::sleep(PAUSE);
        true
    }
}

fn read(
    segment: &Segment,
    document: &Document,
    index: u64,
    patience: &mut Patience,
) -> Option<Raw> {
    /// A writer needs a few ns; one that was switched out in the middle stays odd for longer. Where that takes
    /// too long, the last reading is mended.
    const TRIES: usize = 1000;
    let head = segment.record(index)?;
    let path = head.path.load(Acquire);
    if path == 0 {
        return None;
    }
    loop {
        let mut raw = None;
        for _ in 0..TRIES {
            let before = head.sequence.load(Acquire);
            let reading = read_once(segment, document, index)?;
            fence(Acquire);
            let is_whole = before % 2 == 0 && head.sequence.load(Relaxed) == before;
            let raw = raw.insert(reading);
            if is_whole {
                // A jump out of a signal handler can have left the number odd: then it is even inside.
                raw.settle(document);
                return Some(raw.clone());
            }
            std::hint::spin_loop();
        }
        if !patience.wait() {
            raw.iter_mut().for_each(|raw| raw.settle(document));
            return raw;
        }
    }
}

fn read_once(segment: &Segment, document: &Document, index: u64) -> Option<Raw> {
    let head = segment.record(index)?;
    // Ends before entries: an entry that comes between the two reads is one still open.
    let (closed, unwound) = (head.closed.load(Acquire), head.unwound.load(Acquire));
    // A call that another thread has taken over counts there.
    let entered = head
        .entered
        .load(Acquire)
        .saturating_add(head.moved_in.load(Acquire))
        .saturating_sub(head.moved_out.load(Acquire));
    let path = head.path.load(Relaxed);
    let function = segment.node(path)?.key.load(Relaxed) & !NODE_IS_PATH;
    let mut raw = Raw {
        path,
        function: u32::try_from(function).ok()?,
        tid: head.tid.load(Relaxed),
        entered: entered.max(closed.saturating_add(unwound)),
        closed,
        unwound,
        tail: head.tail.load(Relaxed).min(closed),
        schema: head.schema.load(Relaxed),
        ..Raw::empty(document.metrics.len().saturating_sub(1))
    };
    let schema = document.schemas.get(usize::from(raw.schema));
    let mut steady = None;
    for (number, rule) in schema.iter().flat_map(|s| s.columns.iter().enumerate()) {
        let column = segment.column(index, number)?;
        let is_of_all = rule.is_of_all() || steady.is_some();
        let mut column = read_column(segment, column, is_of_all.then_some(closed), entered);
        if Derived::decode(rule.derived) == Some(Derived::Steady) {
            steady = Some(column);
            continue;
        }
        if let Some(steady) = &steady {
            column.add_steady(steady, rule, closed);
        }
        let metric = document.metric_of(rule);
        if let Some(metric) = metric.and_then(|at| raw.metrics.get_mut(at)) {
            match rule.is_negative() {
                true => metric.negative = column,
                false => metric.positive = column,
            }
        }
    }
    Some(raw)
}

/// A column; `of_all` is how many numbers it has where that is known otherwise, and `most` no fewer than it has.
fn read_column(segment: &Segment, column: &Column, of_all: Option<u64>, most: u64) -> RawColumn {
    let mut histogram = BTreeMap::new();
    let mut put = |k: usize, n: u64| {
        if n != 0 {
            let bucket: &mut u64 = histogram.entry(k.min(63) as u8).or_default();
            *bucket = bucket.saturating_add(n);
        }
    };
    let pooled = column.histogram.load(Relaxed);
    if let Some(pool) = pooled.checked_sub(1).and_then(|i| segment.histogram(i)) {
        pool.buckets
            .iter()
            .enumerate()
            .for_each(|(k, n)| put(k, n.load(Relaxed)));
    }
    let first = column.first_bucket.load(Relaxed);
    if first >= NO_BUCKET {
        let count = of_all.unwrap_or(most);
        histogram = BTreeMap::from([((first % NO_BUCKET) as u8, count)]);
    } else {
        let inline = column.buckets.iter().enumerate();
        inline.for_each(|(k, n)| put(first as usize + k, n.load(Relaxed).into()));
    }
    // Where there is none yet, the smallest is larger than all.
    let is_used = !histogram.is_empty();
    RawColumn {
        sum: column.sum.load(Relaxed),
        min: if is_used { column.min.load(Relaxed) } else { 0 },
        max: column.max.load(Relaxed),
        outermost: column.outermost.load(Relaxed),
        exclusive: column.exclusive.load(Relaxed) as i64,
        histogram,
    }
}
