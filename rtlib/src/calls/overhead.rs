//! The overhead of measurement, and a thread clock that stops during it.
//!
//! The measurement overhead of each thread accumulates in [`abi::segment::ThreadEntry::overhead`].
//! The thread clock is the time-stamp counter minus this overhead. So the time of a call excludes
//! all measurement within it, at any depth. The cost of the assembly fast paths is measured once
//! (`probe/trial.rs`), on the program's own processors. All other paths read the clock at both
//! ends.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::schema::way;

use crate::os::parameters::ipath_parameters;

/// The cost of the assembly fast paths in ticks; 0 until it has been measured.
#[repr(C)]
pub struct Costs {
    /// The overhead that falls into the measured time of a call, in ticks; 0 if times are not
    /// corrected.
    pub inside: AtomicU64,
    /// The overhead within a measured time as `inside`, for calls by [`way::STEADY`], in ticks.
    pub inside_steady: AtomicU64,
    /// The overhead within a measured time as `inside`, for calls by [`way::TIMED_ARGUMENT`], in
    /// ticks.
    pub inside_argument: AtomicU64,
    /// The cost per stack word compared, in fractions of a tick ([`PART`]).
    pub word: AtomicU64,
    /// Total cost of a call by [`way::COMPILED`], in ticks, except for its words and for overhead
    /// that the compiled code measures itself.
    pub general: AtomicU64,
    /// Total cost of a call by [`way::COUNTED`], except for its words, in ticks.
    pub counted: AtomicU64,
    /// Total cost of a call by [`way::TIMED`], except for its words, in ticks.
    pub timed: AtomicU64,
    /// Total cost of a call by [`way::STEADY`], except for its words, in ticks.
    pub steady: AtomicU64,
    /// Total cost of a call with an argument and without times, except for its words, in ticks.
    pub argument: AtomicU64,
    /// Total cost of a call with an argument and times, except for its words, in ticks.
    pub with_argument: AtomicU64,
    /// Total cost of a call with a return value and times, except for its words, in ticks.
    pub with_result: AtomicU64,
    /// What to add to the overhead when an exit of a measured function ends a lent call, in ticks:
    /// the cost of lending and of this end, less that of an exit. It may be negative.
    pub lent: AtomicU64,
    /// What to add to the time of such an exit, in ticks: the part of `lent` that comes after the
    /// reading of the clock, and so does not fall into the call's time. 0 if times are not
    /// corrected.
    pub lent_after: AtomicU64,
    /// As `lent`, for the first call that an exit of a function ends that is not measured.
    pub ender: AtomicU64,
    /// As `lent_after`, for the first call that an exit of a function ends that is not measured.
    pub ender_after: AtomicU64,
}

/// The number of fractional bits in [`Costs::word`].
pub const PART: u32 = 8;

/// The costs of this process's fast paths, as [`Costs`] describes.
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
    lent: AtomicU64::new(0),
    lent_after: AtomicU64::new(0),
    ender: AtomicU64::new(0),
    ender_after: AtomicU64::new(0),
};

const _: () = assert!(size_of::<Costs>() == 8 * abi::image::COSTS);

impl Costs {
    /// True if the costs have been measured, here or in the process that this one was forked from.
    pub fn are_known(&self) -> bool {
        self.timed.load(Ordering::Relaxed) != 0
    }

    /// The cost of a call by an assembly fast path whose walk compares this number of stack words,
    /// in ticks.
    #[inline(always)]
    pub fn of(&self, way: u8, words: u64) -> u64 {
        let words = (words * self.word.load(Ordering::Relaxed)) >> PART;
        words + self.besides(way).load(Ordering::Relaxed)
    }

    /// The cost of a call except for its words, in ticks.
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

/// The part of the thread's overhead that is subtracted from times, in ticks: all of it, or 0 if
/// times are not corrected.
#[inline(always)]
pub fn corrected(overhead: &AtomicU64) -> u64 {
    let corrects = ipath_parameters.corrects.load(Ordering::Relaxed);
    overhead.load(Ordering::Relaxed) & corrects
}

/// The lag of the thread clock when a call begins, in ticks. The overhead inside the call's own
/// time is subtracted, because it would count twice otherwise.
#[inline(always)]
pub fn corrected_at_entry(overhead: &AtomicU64) -> u64 {
    corrected(overhead).wrapping_sub(ipath_costs.inside.load(Ordering::Relaxed))
}

/// The estimated cost of compiled code on a thread. One in 16 executions reads the
/// clock at both ends.
#[repr(C)]
pub struct Estimate {
    /// The average cost of one execution, in ticks.
    ticks: u64,
    /// The number of executions so far.
    times: u64,
}

impl Estimate {
    /// The interval between measurements, a power of two.
    const EVERY: u64 = 16;
    /// The weight of a new measurement in the average is 1 / `LAST`.
    const LAST: u64 = 4;

    /// True if this execution is to be measured. Counts the execution.
    #[inline(always)]
    pub fn is_due(&mut self) -> bool {
        self.times = self.times.wrapping_add(1);
        self.times % Self::EVERY == 1
    }

    /// Updates the average with a measurement, and returns the ticks to count as overhead.
    #[inline(always)]
    pub fn learn(&mut self, ticks: u64) -> u64 {
        /// Maximum ticks that an execution adds to the average. A longer execution was interrupted.
        const MAX_TICKS: u64 = 1 << 10;
        /// Maximum ticks of an execution that count as overhead. In a longer one, the thread was
        /// certainly switched out.
        const MOST_PASSED: u64 = 1 << 14;
        let passed = ticks.min(MOST_PASSED);
        let ticks = ticks.min(MAX_TICKS);
        match self.ticks {
            0 => self.ticks = ticks,
            known => self.ticks = known - known / Self::LAST + ticks / Self::LAST,
        }
        passed
    }

    /// The average cost of one execution so far, in ticks; 0 before the first measurement.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}
