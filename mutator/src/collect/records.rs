//! Records as one consistent reading each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

use abi::segment::{AREA_RECORDS, NO_BUCKET, ROOT_OVERFLOW, RecordHead, RecordTimer};

use crate::segment::Segment;

/// What a record says.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) path: u32,
    pub(super) function: u32,
    pub(super) tid: u32,
    pub(super) entered: u64,
    pub(super) closed: u64,
    pub(super) unwound: u64,
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
            timers,
        }
    }

    /// Activations that have not ended.
    pub(super) fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.closed)
            .saturating_sub(self.unwound)
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
    let capacity = header.areas[AREA_RECORDS].capacity;
    // The target can write to the header at any time: no more is read than the map has room for.
    let room = segment.size() / size_of::<RecordHead>() as u64;
    let mut patience = PATIENCE;
    (0..used.min(capacity).min(room))
        .take_while(|&index| segment.record(index).is_some())
        .filter_map(|index| read(segment, index, &mut patience))
        .collect()
}

/// Readings that are tried again, of one record. A writer needs a few ns; one that was switched out in the
/// middle stays odd for longer, and then the last reading is taken as it is.
const TRIES: usize = 10_000;
/// The same of all records together: more writers than these are not in the middle at a time.
const PATIENCE: usize = 100 * TRIES;

fn read(segment: &Segment, index: u64, patience: &mut usize) -> Option<Raw> {
    let head = segment.record(index)?;
    let path = head.path.load(Acquire);
    if path == 0 {
        return None;
    }
    let mut raw = None;
    for _ in 0..TRIES.min(*patience).max(1) {
        let before = head.sequence.load(Acquire);
        let reading = read_once(segment, index);
        fence(Acquire);
        let is_whole = before % 2 == 0 && head.sequence.load(Relaxed) == before;
        raw = reading;
        if is_whole {
            break;
        }
        *patience = patience.saturating_sub(1);
        std::hint::spin_loop();
    }
    raw
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
        function: head.function.load(Relaxed),
        tid: head.tid.load(Relaxed) as u32,
        entered: entered.max(closed.saturating_add(unwound)),
        closed,
        unwound,
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
