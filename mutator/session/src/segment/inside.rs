//! The counters of functions whose edges are counted: their graphs in the document, and their
//! values in the segment.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use abi::count::{BANK_BYTES, BANKS, MOST_COUNTERS};
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
    /// The loops: header, enclosing loop, and the blocks from which control returns to the header.
    pub loops: Vec<(u32, Option<u32>, Vec<u32>)>,
}

impl InsideDoc {
    /// The number of counters that the function takes. The last one is not for an edge: it is the
    /// number of activations that were outside of calls when the counting began or ended. Each of
    /// them may make a count wrong by 1.
    pub fn counters(&self) -> u32 {
        self.counted.len() as u32 + 1
    }

    /// The number of the counter of uncertain activations.
    pub fn uncertain(&self) -> u32 {
        self.first.saturating_add(self.counted.len() as u32)
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
            let words = banks.filter_map(|bank| {
                let index = bank * MOST_COUNTERS + number;
                let word = self.item::<AtomicU64>(AREA_COUNTS, index, 8, 0);
                word.map(|word| word.load(Relaxed))
            });
            words.fold(0, u64::wrapping_add)
        };
        let numbers = (u64::from(first)..).take(count);
        let is_there = |number: &u64| *number < MOST_COUNTERS;
        numbers
            .map(|number| if is_there(&number) { value(number) } else { 0 })
            .collect()
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
