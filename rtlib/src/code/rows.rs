//! A cache of unwind table rows for full walks. A row holds all registers at once, each unchanged
//! or at a fixed place in the frame, so no table is read again. Each call from a signal handler
//! makes a full walk.
//!
//! There is one cache for the process, which is read without a lock. A row holds in the epoch in
//! which it was found ([`super::epoch`]), while no code is mapped or unmapped.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use unwind::Places;
use unwind::arch::register::COLUMNS;

use super::epoch;
use crate::os::hash;

/// The row as the words of a bucket.
fn encode(row: &Places) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = row.register as u64 | u64::from(row.offset as u32) << 32;
    for (number, &place) in row.places.iter().enumerate() {
        words[1 + number / 4] |= u64::from(place as u16) << (16 * (number % 4));
    }
    words
}

/// The row in the words of a bucket.
fn decode(words: &[u64; WORDS]) -> Places {
    let place = |number: usize| (words[1 + number / 4] >> (16 * (number % 4))) as i16;
    Places {
        register: words[0] as u32 as usize % COLUMNS,
        offset: (words[0] >> 32) as i32,
        places: core::array::from_fn(place),
    }
}

/// The time at which a row was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    epoch: u64,
    generation: u64,
}

/// The number of times that code was mapped or unmapped.
static GENERATION: AtomicU64 = AtomicU64::new(0);

impl Age {
    /// The age of rows found now.
    pub fn now() -> Self {
        Self {
            epoch: epoch::number(),
            generation: GENERATION.load(Acquire),
        }
    }
}

/// Invalidates all rows, because code was mapped or unmapped.
pub fn forget() {
    GENERATION.fetch_add(1, Release);
}

/// Words of a row. Each holds four places.
const WORDS: usize = 1 + COLUMNS.div_ceil(4);
const BUCKETS: usize = 1 << BITS;
const BITS: u32 = 10;

/// A bucket under a sequence lock: it was read consistently if the sequence is even and unchanged.
struct Bucket {
    sequence: AtomicU64,
    key: AtomicU64,
    epoch: AtomicU64,
    generation: AtomicU64,
    words: [AtomicU64; WORDS],
}

static ROWS: [Bucket; BUCKETS] = [const {
    Bucket {
        sequence: AtomicU64::new(0),
        key: AtomicU64::new(0),
        epoch: AtomicU64::new(0),
        generation: AtomicU64::new(0),
        words: [const { AtomicU64::new(0) }; WORDS],
    }
}; BUCKETS];

/// The key of a row. A return address and the equal address of interrupted code may have different
/// rows. Addresses have 47 bits.
fn key(pc: u64, is_return: bool) -> u64 {
    pc << 1 | u64::from(is_return)
}

/// The row at address `pc`, a return address if `is_return`. `None` unless it was cached at this
/// age; also `None` while another thread writes its bucket.
pub fn find(pc: u64, is_return: bool, age: Age) -> Option<Places> {
    let key = key(pc, is_return);
    let bucket = &ROWS[hash::bucket(key, BITS)];
    let before = bucket.sequence.load(Acquire);
    let is_it = bucket.key.load(Relaxed) == key
        && bucket.epoch.load(Relaxed) == age.epoch
        && bucket.generation.load(Relaxed) == age.generation;
    if !before.is_multiple_of(2) || before == 0 || !is_it {
        return None;
    }
    let words = bucket.words.each_ref().map(|word| word.load(Relaxed));
    fence(Acquire);
    let is_whole = bucket.sequence.load(Relaxed) == before;
    is_whole.then(|| decode(&words))
}

/// Caches a row in place of another one, unless another thread is writing the bucket. Signals are
/// blocked, or no handler calls this.
pub fn keep(pc: u64, is_return: bool, age: Age, row: &Places) {
    let key = key(pc, is_return);
    let bucket = &ROWS[hash::bucket(key, BITS)];
    let before = bucket.sequence.load(Relaxed);
    let is_free = before.is_multiple_of(2)
        && bucket
            .sequence
            .compare_exchange(before, before + 1, Acquire, Relaxed)
            .is_ok();
    if !is_free {
        return;
    }
    fence(Release);
    bucket.key.store(key, Relaxed);
    bucket.epoch.store(age.epoch, Relaxed);
    bucket.generation.store(age.generation, Relaxed);
    for (word, to) in encode(row).into_iter().zip(&bucket.words) {
        to.store(word, Relaxed);
    }
    bucket.sequence.store(before + 2, Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;
    use unwind::STAYS;

    fn row(seed: u64) -> Places {
        let place = |number: usize| {
            if (seed as usize + number).is_multiple_of(3) {
                STAYS
            } else {
                (seed as i16)
                    .wrapping_mul(31)
                    .wrapping_sub(8 * number as i16)
                    | 1
            }
        };
        Places {
            register: seed as usize % 16,
            offset: (seed as i32).wrapping_mul(-0x0101_0101),
            places: core::array::from_fn(place),
        }
    }

    const THEN: Age = Age {
        epoch: 7,
        generation: 3,
    };

    #[test]
    fn rows_are_found_as_they_were_kept() {
        let others = [
            Age { epoch: 8, ..THEN },
            Age {
                generation: 4,
                ..THEN
            },
        ];
        let kept: Vec<u64> = (0x40_0000..).step_by(0x35).take(3000).collect();
        for &pc in &kept {
            for is_return in [false, true] {
                keep(pc, is_return, THEN, &row(pc + u64::from(is_return)));
            }
        }
        let mut found = 0;
        for &pc in &kept {
            for is_return in [false, true] {
                for other in others {
                    assert_eq!(find(pc, is_return, other), None);
                }
                assert_eq!(find(pc + 1, is_return, THEN), None);
                let expected = row(pc + u64::from(is_return));
                if let Some(row) = find(pc, is_return, THEN) {
                    found += 1;
                    assert_eq!(row, expected);
                }
            }
        }
        assert!(found > BUCKETS / 2, "{found}");
    }

    #[test]
    fn a_row_that_is_being_written_is_not_found() {
        std::thread::scope(|scope| {
            for seed in 0..2u64 {
                scope.spawn(move || {
                    for round in 0..200_000 {
                        keep(0x7f00_1234, true, THEN, &row(seed + 2 * (round % 5)));
                    }
                });
            }
            for _ in 0..200_000 {
                if let Some(found) = find(0x7f00_1234, true, THEN) {
                    assert!((0..10).any(|seed| row(seed) == found), "{found:?}");
                }
            }
        });
    }
}
