//! Records as one consistent reading each.

use std::collections::BTreeMap;
use std::collections::btree_map::{Entry, OccupiedEntry};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

use abi::segment::{AREA_RECORDS, NO_BUCKET, ROOT_OVERFLOW, RecordTimer};

use crate::segment::Segment;

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
    pub(super) timers: Vec<RawTimer>,
}

/// One timer of a record, in ticks; the histogram in its unit.
#[derive(Clone, Debug, Default)]
pub(super) struct RawTimer {
    pub(super) sum: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) outermost: u64,
    pub(super) exclusive: u64,
    pub(super) histogram: BTreeMap<u8, u64>,
}

impl RawTimer {
    /// Calls that its histogram holds.
    fn held(&self) -> u64 {
        self.histogram
            .values()
            .fold(0, |sum, &n| sum.saturating_add(n))
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
    pub(super) fn empty(timers: usize) -> Self {
        let timers = vec![RawTimer::default(); timers];
        Self {
            path: 0,
            function: 0,
            tid: 0,
            entered: 0,
            closed: 0,
            unwound: 0,
            tail: 0,
            timers,
        }
    }

    /// Activations that have not ended.
    pub(super) fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.closed)
            .saturating_sub(self.unwound)
    }

    /// Makes all of it tell of the same calls. A writer that stands still in the middle of a call's end has counted
    /// that call in one place and not yet in another: its thread does not run, or has been killed there.
    fn settle(&mut self) {
        let held = |timer: &RawTimer| timer.held();
        let (Some(least), Some(most)) = (
            self.timers.iter().map(held).min(),
            self.timers.iter().map(held).max(),
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
        for timer in &mut self.timers {
            timer.hold(self.closed);
        }
        let ended = self.closed.saturating_add(self.unwound);
        self.entered = self.entered.max(ended);
        self.tail = self.tail.min(self.closed);
    }

    /// Adds another thread's record of the same path.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.timers.iter_mut().zip(&other.timers) {
            if other.closed > 0 {
                sum.min = if self.closed == 0 {
                    more.min
                } else {
                    sum.min.min(more.min)
                };
                sum.max = sum.max.max(more.max);
            }
            sum.sum = sum.sum.saturating_add(more.sum);
            sum.outermost = sum.outermost.saturating_add(more.outermost);
            sum.exclusive = sum.exclusive.saturating_add(more.exclusive);
            for (&k, &n) in &more.histogram {
                let bucket = sum.histogram.entry(k).or_default();
                *bucket = bucket.saturating_add(n);
            }
        }
        self.entered = self.entered.saturating_add(other.entered);
        self.closed = self.closed.saturating_add(other.closed);
        self.unwound = self.unwound.saturating_add(other.unwound);
        self.tail = self.tail.saturating_add(other.tail);
    }
}

/// Function, path and thread, that where threads are kept apart.
pub(super) type Key = (u32, u32, Option<u32>);

/// Stands for all the paths of a function that there is no room for.
pub(super) const SHARED: u32 = 0;

/// Every record in use, those of one path added up.
pub(super) fn merged(segment: &Segment, per_thread: bool) -> BTreeMap<Key, Raw> {
    let mut merged = BTreeMap::new();
    for raw in read_all(segment) {
        let parent = segment.node(raw.path).map(|leaf| leaf.parent.load(Relaxed));
        let is_shared = parent == Some(ROOT_OVERFLOW);
        let path = if is_shared { SHARED } else { raw.path };
        add_to(
            &mut merged,
            (raw.function, path, per_thread.then_some(raw.tid)),
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
fn read_all(segment: &Segment) -> Vec<Raw> {
    let header = segment.header();
    let used = header.records_used.load(Acquire);
    // The target can write to the header at any time: no more is read than there is memory for.
    let used = segment.used(AREA_RECORDS, used);
    let mut patience = Patience::default();
    (0..used)
        .take_while(|&index| segment.record(index).is_some())
        .filter_map(|index| read(segment, index, &mut patience))
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

fn read(segment: &Segment, index: u64, patience: &mut Patience) -> Option<Raw> {
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
            let reading = read_once(segment, index)?;
            fence(Acquire);
            let is_whole = before % 2 == 0 && head.sequence.load(Relaxed) == before;
            let raw = raw.insert(reading);
            if is_whole {
                // A jump out of a signal handler can have left the number odd: then it is even inside.
                raw.settle();
                return Some(raw.clone());
            }
            std::hint::spin_loop();
        }
        if !patience.wait() {
            raw.iter_mut().for_each(Raw::settle);
            return raw;
        }
    }
}

fn read_once(segment: &Segment, index: u64) -> Option<Raw> {
    let head = segment.record(index)?;
    // Ends before entries: an entry that comes between the two reads is one still open.
    let (closed, unwound) = (head.closed.load(Acquire), head.unwound.load(Acquire));
    // A call that another thread has taken over counts there.
    let entered = head
        .entered
        .load(Acquire)
        .saturating_add(head.moved_in.load(Acquire))
        .saturating_sub(head.moved_out.load(Acquire));
    let timers = segment.header().timers.load(Relaxed) as usize;
    let timers = (0..timers.min(abi::MAX_TIMERS))
        .map(|n| {
            segment
                .record_timer(index, n)
                .map(|t| read_timer(segment, t, closed))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Raw {
        path: head.path.load(Relaxed),
        function: head.function.load(Relaxed).into(),
        tid: head.tid.load(Relaxed),
        entered: entered.max(closed.saturating_add(unwound)),
        closed,
        unwound,
        tail: head.tail.load(Relaxed).min(closed),
        timers,
    })
}

fn read_timer(segment: &Segment, timer: &RecordTimer, closed: u64) -> RawTimer {
    let mut histogram = BTreeMap::new();
    let mut put = |k: usize, n: u64| {
        if n != 0 {
            let bucket: &mut u64 = histogram.entry(k.min(63) as u8).or_default();
            *bucket = bucket.saturating_add(n);
        }
    };
    let pooled = timer.histogram.load(Relaxed);
    if let Some(pool) = pooled.checked_sub(1).and_then(|i| segment.histogram(i)) {
        pool.buckets
            .iter()
            .enumerate()
            .for_each(|(k, n)| put(k, n.load(Relaxed)));
    }
    let first = timer.first_bucket.load(Relaxed);
    if first >= NO_BUCKET {
        histogram = BTreeMap::from([((first % NO_BUCKET) as u8, closed)]);
    } else {
        let inline = timer.buckets.iter().enumerate();
        inline.for_each(|(k, n)| put(first as usize + k, n.load(Relaxed).into()));
    }
    RawTimer {
        sum: timer.sum.load(Relaxed),
        min: timer.min.load(Relaxed),
        max: timer.max.load(Relaxed),
        outermost: timer.outermost.load(Relaxed),
        exclusive: timer.exclusive.load(Relaxed),
        histogram,
    }
}
