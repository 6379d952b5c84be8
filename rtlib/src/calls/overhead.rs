//! What measuring takes, and the clock of a thread that stands still meanwhile.
//!
//! Each thread adds up what measuring has taken on it ([`abi::segment::ThreadEntry::overhead`]). Times are told by the
//! time-stamp counter less that, so that a call's has nothing of what was measured within it, however deep. What the
//! hand-written ways take is found out once (`probe/trial.rs`), on the program's own processors; each other way reads
//! the clock at its ends.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::schema::way;

use crate::os::parameters::ipath_parameters;

/// What the hand-written ways take, in ticks; nothing as long as it is not known.
#[repr(C)]
pub struct Costs {
    /// Of a call whose time is measured, what falls into that time; nothing where times are not corrected.
    pub inside: AtomicU64,
    /// The same of one by [`way::STEADY`].
    pub inside_steady: AtomicU64,
    /// The same of one by [`way::TIMED_ARGUMENT`].
    pub inside_argument: AtomicU64,
    /// For each word that is compared, in parts of a tick ([`PART`]).
    pub word: AtomicU64,
    /// All that a call by [`way::COMPILED`] takes besides its words and what is measured where it is done.
    pub general: AtomicU64,
    /// All that one takes by [`way::COUNTED`] besides its words,
    pub counted: AtomicU64,
    /// by [`way::TIMED`],
    pub timed: AtomicU64,
    /// by [`way::STEADY`],
    pub steady: AtomicU64,
    /// with an argument and without times,
    pub argument: AtomicU64,
    /// with an argument,
    pub with_argument: AtomicU64,
    /// and with what it returns.
    pub with_result: AtomicU64,
}

/// Bits of parts of a tick.
pub const PART: u32 = 8;

/// See [`Costs`].
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_costs: Costs = Costs {
    inside: AtomicU64::new(0),
    inside_steady: AtomicU64::new(0),
    inside_argument: AtomicU64::new(0),
    word: AtomicU64::new(0),
    general: AtomicU64::new(0),
    counted: AtomicU64::new(0),
    timed: AtomicU64::new(0),
    steady: AtomicU64::new(0),
    argument: AtomicU64::new(0),
    with_argument: AtomicU64::new(0),
    with_result: AtomicU64::new(0),
};

const _: () = assert!(size_of::<Costs>() == 8 * abi::image::COSTS);

impl Costs {
    /// True if they have been found out, here or in the process that this one was forked from.
    pub fn are_known(&self) -> bool {
        self.timed.load(Ordering::Relaxed) != 0
    }

    /// What a call takes whose walk has read so many words, by the hand-written ways.
    #[inline(always)]
    pub fn of(&self, way: u8, words: u64) -> u64 {
        let words = (words * self.word.load(Ordering::Relaxed)) >> PART;
        words + self.besides(way).load(Ordering::Relaxed)
    }

    /// What a call takes besides its words.
    #[inline(always)]
    pub fn besides(&self, way: u8) -> &AtomicU64 {
        match way {
            way::COMPILED => &self.general,
            way::COUNTED => &self.counted,
            way::TIMED => &self.timed,
            way::STEADY => &self.steady,
            way::TIMED_RESULT => &self.with_result,
            way::TIMED_ARGUMENT.. => &self.with_argument,
            _ => &self.argument,
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

    /// What it took this time, to be learnt; what of that is to be taken for measuring.
    #[inline(always)]
    pub fn learn(&mut self, ticks: u64) -> u64 {
        /// What takes longer has been interrupted,
        const MOST: u64 = 1 << 10;
        /// and with that for sure the thread was switched out.
        const MOST_PASSED: u64 = 1 << 14;
        let passed = ticks.min(MOST_PASSED);
        let ticks = ticks.min(MOST);
        match self.ticks {
            0 => self.ticks = ticks,
            known => self.ticks = known - known / Self::LAST + ticks / Self::LAST,
        }
        passed
    }

    /// What it takes.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}
