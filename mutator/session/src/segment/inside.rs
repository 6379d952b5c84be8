//! The counters of functions whose edges are counted: their graphs in the document, and their
//! values in the segment.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use abi::count::{BANK_BYTES, BANKS, MOST_COUNTERS};
use abi::path::{BEFORE, BEGUN, ENTRIES, POWERS, UNCOUNTED, UNKNOWN};
use abi::segment::AREA_COUNTS;
use patcher::Avma;
use serde::{Deserialize, Serialize};

use super::{Segment, SegmentError};

/// The graph of a function whose edges are counted, and its counters.
///
/// Its nodes are the segments of [`patcher::inside::Counting`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideDoc {
    /// The number of the function's first counter.
    pub first: u32,
    /// The link-time address and the size in bytes of each basic block.
    pub blocks: Vec<(u64, u64)>,
    /// For each segment, the block that it belongs to.
    pub segments: Vec<u32>,
    /// The edges between segments: from, to and kind. `None` stands for the outside.
    pub edges: Vec<(Option<u32>, Option<u32>, EdgeDoc)>,
    /// For each counter, the edge that it counts.
    pub counted: Vec<u32>,
    /// The counters of paths. `None` if paths are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<PathsDoc>,
    /// The loops whose trips are counted: indexes into `loops`, and the first counter of each, from
    /// `first` on. `None` if trips are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trips: Option<Vec<(u32, u32)>>,
    /// The loops: header, enclosing loop, and the blocks from which control returns to the header.
    pub loops: Vec<(u32, Option<u32>, Vec<u32>)>,
    /// True if the places of the counters were chosen by counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_counts: bool,
    /// The counters that went out when others came in at other places. Their values are a part of
    /// the counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierDoc>,
}

/// Counters of a function that went out, for the same edges and paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierDoc {
    /// The number of the first counter.
    pub first: u32,
    /// For each counter, the edge that it counted.
    pub counted: Vec<u32>,
}

/// The counters that were in at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'d> {
    /// The number of the first counter.
    pub first: u32,
    /// For each counter, the edge that it counts.
    pub counted: &'d [u32],
}

impl Layout<'_> {
    /// The number of the counter of uncertain activations.
    pub fn uncertain(&self) -> u32 {
        self.first.saturating_add(self.counted.len() as u32)
    }

    /// The number of the first counter of paths.
    fn first_of_paths(&self) -> u32 {
        self.uncertain().saturating_add(1)
    }
}

impl InsideDoc {
    /// The number of counters that the function takes. The one after those of edges is the number
    /// of activations that were outside of calls when the counting began or ended. Each of them may
    /// make a count wrong by 1. Those of paths follow.
    pub fn counters(&self) -> u32 {
        let paths = self.paths.as_ref().map_or(0, PathsDoc::counters);
        let trips = self.trips.as_ref().map_or(0, Vec::len) as u32 * (BEFORE + POWERS);
        (self.counted.len() as u32 + 1)
            .saturating_add(paths)
            .saturating_add(trips)
    }

    /// The counters, the present ones last.
    pub fn layouts(&self) -> impl Iterator<Item = Layout<'_>> {
        let earlier = self.earlier.iter().map(|earlier| Layout {
            first: earlier.first,
            counted: &earlier.counted,
        });
        earlier.chain([self.layout()])
    }

    /// The present counters.
    fn layout(&self) -> Layout<'_> {
        Layout {
            first: self.first,
            counted: &self.counted,
        }
    }

    /// The numbers that identify what is followed: the first counters of the paths and of loops.
    pub fn followed(&self) -> impl Iterator<Item = u32> + '_ {
        let paths = self.layouts().filter(|_| self.paths.is_some());
        let paths = paths.map(|layout| layout.first_of_paths());
        let trips = self.trips.iter().flatten();
        paths.chain(trips.map(|&(_, number)| self.first.saturating_add(number)))
    }

    /// The number of the first counter of paths.
    pub fn first_of_paths(&self) -> u32 {
        self.layout().first_of_paths()
    }

    /// The number of the counter of uncertain activations.
    pub fn uncertain(&self) -> u32 {
        self.layout().uncertain()
    }
}

/// The paths of a function, and their counters ([`abi::path`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathsDoc {
    /// The number of paths.
    pub paths: u64,
    /// True if the counters are a hash table.
    pub hashed: bool,
    /// The back edges, at which paths end: indexes into [`InsideDoc::edges`], ascending.
    pub back: Vec<u32>,
    /// The edges into loops, if paths end there as well: indexes as in `back`, ascending.
    pub into_loops: Vec<u32>,
}

impl PathsDoc {
    /// True if the edge is a back edge.
    pub(crate) fn is_back(&self, edge: u32) -> bool {
        self.back.binary_search(&edge).is_ok()
    }

    /// True if the edge leads into a loop, and paths end there.
    pub(crate) fn is_into_loop(&self, edge: u32) -> bool {
        self.into_loops.binary_search(&edge).is_ok()
    }

    /// The number of counters.
    fn counters(&self) -> u32 {
        let paths = if self.hashed { 2 * ENTRIES } else { self.paths };
        BEFORE.saturating_add(u32::try_from(paths).unwrap_or(u32::MAX))
    }
}

/// The counts of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// The count of each path that was taken, by its number.
    pub counts: BTreeMap<u64, u64>,
    /// Activations that have begun.
    pub begun: u64,
    /// Paths that have ended and whose number is not known.
    pub unknown: u64,
    /// Paths that have ended and had no room among the counters.
    pub uncounted: u64,
}

impl PathCounts {
    /// The sum of all counts, modulo 2^64. It advances with each of them.
    pub fn transfers(&self) -> u64 {
        let others = [self.begun, self.unknown, self.uncounted];
        let all = self.counts.values().copied().chain(others);
        all.fold(0, u64::wrapping_add)
    }
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeDoc {
    /// An arrival from outside.
    Entry,
    /// Control continues at the next instruction.
    Fall,
    /// A branch is taken.
    Taken,
    /// An entry of a jump table.
    Case,
    /// A departure.
    Exit,
    /// A departure from inside a call, minus the calls that were under way at first.
    Left,
}

impl Segment {
    /// Makes room for `count` counters from number `first` on, all 0. False if there is no room or
    /// no memory.
    ///
    /// # Errors
    /// The segment cannot be written.
    pub fn add_counters(&self, first: u32, count: u32) -> Result<bool, SegmentError> {
        let (offset, bytes) = self.area_bytes(AREA_COUNTS);
        let end = u64::from(first) + u64::from(count);
        if end > MOST_COUNTERS || bytes < BANKS as u64 * BANK_BYTES {
            return Ok(false);
        }
        let zeroes = vec![0; 8 * count as usize];
        for bank in 0..BANKS as u64 {
            if !self.write_at(offset + bank * BANK_BYTES + 8 * u64::from(first), &zeroes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The values of `count` counters from number `first` on. Those that do not exist are 0.
    pub fn counts(&self, first: u32, count: usize) -> Vec<u64> {
        let value = |number: u64| {
            let banks = 0..BANKS as u64;
            let words = banks.map(|bank| self.counter(bank, number));
            words.fold(0, u64::wrapping_add)
        };
        (u64::from(first)..).take(count).map(value).collect()
    }

    /// The value of a counter in one bank. 0 if it does not exist.
    fn counter(&self, bank: u64, number: u64) -> u64 {
        let index = bank * MOST_COUNTERS + number;
        let word = self.item::<AtomicU64>(AREA_COUNTS, index, 8, 0);
        let word = word.filter(|_| number < MOST_COUNTERS);
        word.map_or(0, |word| word.load(Relaxed))
    }

    /// The counts of the paths of a function.
    pub fn path_counts(&self, inside: &InsideDoc) -> PathCounts {
        let Some(paths) = &inside.paths else {
            return PathCounts::default();
        };
        let mut sums = PathCounts::default();
        for layout in inside.layouts() {
            self.add_path_counts(paths, layout.first_of_paths(), &mut sums);
        }
        sums
    }

    /// Adds the counts of paths whose counters begin at number `first`.
    fn add_path_counts(&self, paths: &PathsDoc, first: u32, sums: &mut PathCounts) {
        let before = self.counts(first, BEFORE as usize);
        let of_paths = first.saturating_add(BEFORE);
        let mut add = |number: u64, count: u64| {
            let sum = sums.counts.entry(number).or_default();
            *sum = sum.saturating_add(count);
        };
        if paths.hashed {
            let hashed = self.hashed_counts(of_paths);
            hashed.for_each(|(number, count)| add(number, count));
        } else {
            let all = self.counts(of_paths, usize::try_from(paths.paths).unwrap_or(0));
            let taken = (0..).zip(all).filter(|&(_, count)| count > 0);
            taken.for_each(|(number, count)| add(number, count));
        }
        for (sum, number) in [
            (&mut sums.begun, BEGUN),
            (&mut sums.unknown, UNKNOWN),
            (&mut sums.uncounted, UNCOUNTED),
        ] {
            *sum = sum.wrapping_add(before[number as usize]);
        }
    }

    /// The trips of a loop whose first counter is `number`: the exponent of each power of two, and
    /// the number of entries with so many iterations. Then the number of those that are not known.
    pub fn trips(&self, inside: &InsideDoc, number: u32) -> (Vec<(u32, u64)>, u64) {
        let first = inside.first.saturating_add(number);
        let counts = self.counts(first.saturating_add(BEFORE), POWERS as usize);
        let trips = (0..).zip(counts).filter(|&(_, count)| count > 0).collect();
        let unknown = self.counts(first.saturating_add(UNKNOWN), 1)[0];
        (trips, unknown)
    }

    /// The paths and counts in the hash tables of all banks, from counter `first` on.
    fn hashed_counts(&self, first: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let entries = (0..BANKS as u64).flat_map(|bank| (0..ENTRIES).map(move |at| (bank, at)));
        entries.filter_map(move |(bank, at)| {
            let number = u64::from(first) + 2 * at;
            let path = self.counter(bank, number).checked_sub(1)?;
            Some((path, self.counter(bank, number + 1)))
        })
    }

    /// Adds to a counter. Does nothing if it does not exist.
    pub fn add_to_counter(&self, number: u32, by: u64) {
        let number = u64::from(number);
        let word = self.item::<AtomicU64>(AREA_COUNTS, number, 8, 0);
        if let Some(word) = word.filter(|_| number < MOST_COUNTERS) {
            word.fetch_add(by, Relaxed);
        }
    }

    /// The addresses of the banks in a target that has the segment mapped at `start`.
    pub fn banks(&self, start: Avma) -> impl Iterator<Item = Avma> + use<> {
        let (offset, _) = self.area_bytes(AREA_COUNTS);
        (0..BANKS as u64).map(move |bank| start.plus(offset + bank * BANK_BYTES))
    }
}
