//! What measuring takes, and the clock of a thread that stands still meanwhile.
//!
//! Each thread adds up what measuring has taken on it ([`abi::segment::ThreadEntry::overhead`]). Times are told by the
//! time-stamp counter less that, so that a call's has nothing of what was measured within it, however deep. What the
//! hand-written ways take is found out once (`probe/trial.rs`), on the program's own processors; each other way reads
//! the clock at its ends.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::schema::{SCHEMA_COUNT, SCHEMA_WALL};

use crate::os::parameters::ipath_parameters;

/// What the hand-written ways take, in ticks; nothing as long as it is not known.
#[repr(C)]
pub struct Costs {
    /// Of a call whose time is measured, what falls into that time; nothing where times are not corrected.
    pub inside: AtomicU64,
    /// All that such a call takes, besides its words.
    pub timed: AtomicU64,
    /// The same of one that is counted alone.
    pub counted: AtomicU64,
    /// And of one of which more is measured than the time, but what is measured where it is done.
    pub general: AtomicU64,
    /// For each word that is compared, in parts of a tick ([`PART`]).
    pub word: AtomicU64,
}

/// Bits of parts of a tick.
pub const PART: u32 = 8;

/// See [`Costs`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_costs: Costs = Costs {
    inside: AtomicU64::new(0),
    timed: AtomicU64::new(0),
    counted: AtomicU64::new(0),
    general: AtomicU64::new(0),
    word: AtomicU64::new(0),
};

impl Costs {
    /// What a call takes whose walk has read so many words, by the hand-written ways.
    #[inline(always)]
    pub fn of(&self, schema: u8, words: u64) -> u64 {
        let ticks = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let words = (words * ticks(&self.word)) >> PART;
        words
            + match schema {
                SCHEMA_COUNT => ticks(&self.counted),
                SCHEMA_WALL => ticks(&self.timed),
                _ => ticks(&self.general),
            }
    }
}

/// Of what measuring has taken on a thread, what its times are to be without.
#[inline(always)]
pub fn corrected(overhead: &AtomicU64) -> u64 {
    let corrects = ipath_parameters.corrects.load(Ordering::Relaxed);
    overhead.load(Ordering::Relaxed) & corrects
}

/// By how much the clock of a thread stays behind when a call begins: not by what falls into the call's own time, once more.
#[inline(always)]
pub fn corrected_at_entry(overhead: &AtomicU64) -> u64 {
    corrected(overhead).wrapping_sub(ipath_costs.inside.load(Ordering::Relaxed))
}

/// What a way takes that is not hand-written, on a thread. One time in so many it reads the clock at both ends.
#[repr(C)]
pub struct Estimate {
    /// Ticks that it takes.
    ticks: u64,
    /// Times that it has been taken.
    times: u64,
}

impl Estimate {
    /// A power of two.
    const EVERY: u64 = 16;
    /// How many of the last ones count.
    const LAST: u64 = 4;

    /// Whether this time the clock is to be read.
    #[inline(always)]
    pub fn is_due(&mut self) -> bool {
        self.times = self.times.wrapping_add(1);
        self.times % Self::EVERY == 1
    }

    /// What it took this time.
    #[inline(always)]
    pub fn learn(&mut self, ticks: u64) {
        /// What takes longer has been interrupted.
        const MOST: u64 = 1 << 10;
        let ticks = ticks.min(MOST);
        match self.ticks {
            0 => self.ticks = ticks,
            known => self.ticks = known - known / Self::LAST + ticks / Self::LAST,
        }
    }

    /// What it takes.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}
