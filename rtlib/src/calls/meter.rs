//! What a thread measures its calls with.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::activation::{Activation, More};
use super::overhead::{self, Estimate};
use crate::ledger::record::Amounts;
use crate::os::memory;
use crate::sources::Sources;

/// What a thread measures its calls with.
#[repr(C)]
pub struct Meter {
    /// What is read.
    pub sources: Sources,
    /// What measuring has taken on the thread.
    pub overhead: *const AtomicU64,
    /// Since when what passes is what measuring takes; 0 where that is not being found out.
    pub since: u64,
    /// The number of the thread's page then, and one more bit; 0 where there is none.
    pub lock: u64,
    /// Ticks that blocking signals took on the last slow path.
    pub blocking: u64,
    /// What has passed as a rule at a time.
    usual: u64,
    /// What entries and exits take that are not hand-written.
    pub entries: Estimate,
    /// See `entries`.
    pub exits: Estimate,
    /// What the columns of a record get of the call that is being seen to.
    pub amounts: Amounts,
    /// CPU time of that call, in ticks; what of it is nested, where it is not known.
    pub(super) cpu: u64,
    /// Where the values of that call are, at its exit; with the slot 0 where there is none.
    pub(super) values: Values,
    /// Room for what activations need of other sources than the clock and CPU time, how much is left of it.
    room: *mut More,
    rooms: u64,
}

/// Where values of a call are.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Values {
    /// The address of its return address.
    pub slot: u64,
    /// Where the vector registers are, as [`crate::sources::value::read`] is told it.
    pub vectors: u64,
}

/// A thread without a page reads its context switches after a slow path of more ticks than this. A
/// shorter preemption adds little to the overhead.
const LONG: u64 = 1 << 15;

/// The most ticks that count if context switches are unknown, as a multiple of the average.
const UNUSUAL: u64 = 16;

/// Bytes of room that are mapped at a time.
const CHUNK: u64 = 1 << 14;

impl Meter {
    /// Begins to measure what ends at an exit that was reached at `now`; its return value is where `slot` and `vectors` say,
    /// with the slot 0 where there is none.
    #[inline(always)]
    pub fn begin(&mut self, now: u64, slot: u64, vectors: u64) {
        self.sources.begin(now);
        self.values.slot = slot;
        if slot != 0 {
            self.values.vectors = vectors;
        }
    }

    /// Adds to what measuring has taken.
    #[inline(always)]
    pub fn pass(&self, ticks: u64) {
        // SAFETY: it leads to the thread's entry in the segment.
        let overhead = unsafe { &*self.overhead };
        let passed = overhead.load(Ordering::Relaxed).wrapping_add(ticks);
        overhead.store(passed, Ordering::Relaxed);
    }

    /// What measuring has taken on the thread so far.
    pub fn passed(&self) -> u64 {
        // SAFETY: as above.
        unsafe { &*self.overhead }.load(Ordering::Relaxed)
    }

    /// What passes from now on is what measuring takes.
    #[inline(always)]
    pub fn pass_from(&mut self, now: u64) {
        self.since = now;
        self.lock = self.lock_now();
    }

    #[inline(always)]
    fn lock_now(&self) -> u64 {
        let known = |lock| 1 << 32 | u64::from(lock);
        self.sources.page.lock().map_or(0, known)
    }

    /// Adds the ticks from the last reading to `now`. If the thread was switched out in between, adds at
    /// most the average: another thread had the processor for the rest.
    #[inline(always)]
    pub fn pass_until(&mut self, now: u64) {
        /// The last reading has a weight of 1 / `LAST` in the average.
        const LAST: u64 = 8;
        let mut ticks = now.wrapping_sub(self.since);
        let lock = self.lock;
        self.pass_from(now);
        let was_out = match lock {
            0 if ticks <= LONG => false,
            0 => self.sources.has_been_out().unwrap_or_else(|| {
                ticks = ticks.min(LONG.max(self.usual.saturating_mul(UNUSUAL)));
                false
            }),
            _ => lock != self.lock,
        };
        if was_out {
            self.pass(ticks.min(self.usual));
        } else {
            self.usual = self.usual - self.usual / LAST + ticks / LAST;
            self.pass(ticks);
        }
    }

    /// Adds all ticks from the last reading to `now`, including those in which the thread waited.
    pub fn pass_waiting_until(&mut self, now: u64) {
        if self.lock != 0 {
            return self.pass_until(now);
        }
        self.pass(now.wrapping_sub(self.since));
        self.pass_from(now);
    }

    /// What of that times are to be without.
    #[inline(always)]
    pub(super) fn corrected(&self) -> u64 {
        // SAFETY: as above.
        overhead::corrected(unsafe { &*self.overhead })
    }

    /// By how much clocks stay behind when a call begins.
    #[inline(always)]
    pub(super) fn corrected_at_entry(&self) -> u64 {
        // SAFETY: as above.
        overhead::corrected_at_entry(unsafe { &*self.overhead })
    }

    /// Ticks that a call has taken which ends now.
    ///
    /// # Safety
    /// The activation is valid.
    #[inline(always)]
    pub(super) unsafe fn ticks(&self, top: *mut Activation) -> u64 {
        // SAFETY: the caller's promise.
        let start = unsafe { (*top).start };
        since(start, self.sources.now().wrapping_sub(self.corrected()))
    }

    /// Makes it that of another thread.
    pub fn renew(&mut self) {
        self.sources.renew();
    }

    /// Gives an activation room for what it needs of other sources, where there is memory.
    pub(super) unsafe fn make_room(&mut self, activation: *mut Activation) {
        // SAFETY: the caller's promise.
        unsafe {
            if (*activation).more.is_null() {
                (*activation).more = self.room();
            }
        }
    }

    /// Room for one more activation; null where there is no memory.
    fn room(&mut self) -> *mut More {
        if self.rooms == 0 {
            let Ok(chunk) = memory::map(CHUNK) else {
                return ptr::null_mut();
            };
            self.room = chunk as *mut More;
            self.rooms = CHUNK / size_of::<More>() as u64;
        }
        let room = self.room;
        // SAFETY: inside the chunk, or at its end.
        self.room = unsafe { room.add(1) };
        self.rooms -= 1;
        room
    }
}

/// From one time of a thread's own clock to another, which may be one before the clock began.
#[inline(always)]
pub(super) fn since(start: u64, end: u64) -> u64 {
    (end.wrapping_sub(start) as i64).max(0) as u64
}
