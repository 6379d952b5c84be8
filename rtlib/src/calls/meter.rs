//! The state with which a thread measures its calls.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::activation::{Activation, More};
use super::blocks::Blocks;
use super::overhead::{self, Estimate};
use crate::arch::clock;
use crate::ledger::record::Amounts;
use crate::os::{memory, parameters};
use crate::sources::{Sources, value};
use abi::value::RETURN;

/// The state with which a thread measures its calls.
#[repr(C)]
pub struct Meter {
    /// The sources of the thread's measurements.
    pub sources: Sources,
    /// The measurement overhead of the thread.
    pub overhead: *const AtomicU64,
    /// The time (of the time-stamp counter) from which on the elapsed ticks count as overhead; 0 if
    /// overhead is not being measured.
    pub since: u64,
    /// The sequence number of the thread's page at the time `since`, with a bit above it set; 0
    /// without a page.
    pub lock: u64,
    /// Ticks spent blocking signals on the last slow path.
    pub blocking: u64,
    /// Average ticks per interval of overhead.
    usual: u64,
    /// The estimated cost of entries in compiled code.
    pub entries: Estimate,
    /// The estimated cost of exits in compiled code.
    pub exits: Estimate,
    /// The ticks of the end of a timed path, which also looks up the record of the path.
    pub path_ends: Estimate,
    /// The amounts to add to the record's columns for the current call.
    pub amounts: Amounts,
    /// CPU time of the current call, in ticks. If that is unknown, the nested CPU time.
    pub(super) cpu: u64,
    /// True if `cpu` is the CPU time of the current call.
    pub(super) knows_cpu: bool,
    /// The location of the values of the current call at its exit. The slot is 0 if there is none.
    pub(super) values: Values,
    /// The next free item for the values of an activation's further sources ([`More`]).
    room: *mut More,
    /// The number of free items from `room` on.
    rooms: u64,
    /// The thread's blocks of single calls.
    pub(super) single: Blocks,
}

/// The location of a call's values.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Values {
    /// The address of the call's return address; 0 if there are no values.
    pub slot: u64,
    /// The location of the vector registers, in the format of [`crate::sources::value::read`].
    pub vectors: u64,
}

/// A thread without a page reads its context switches after a slow path of more ticks than this. A
/// shorter preemption adds little to the overhead.
const LONG: u64 = 1 << 15;

/// The limit of an interval if context switches are unknown, as a multiple of the average.
const UNUSUAL: u64 = 16;

/// Bytes mapped at a time for the values of further sources.
const CHUNK: u64 = 1 << 14;

impl Meter {
    /// Starts measuring the exit reached at `now`. The return value is at `slot` and `vectors`; the
    /// slot is 0 if there is none.
    #[inline(always)]
    pub fn begin(&mut self, now: u64, slot: u64, vectors: u64) {
        self.sources.begin(now);
        self.values.slot = slot;
        if slot != 0 {
            self.values.vectors = vectors;
        }
    }

    /// Adds ticks to the thread's overhead.
    #[inline(always)]
    pub fn pass(&self, ticks: u64) {
        // SAFETY: the pointer leads to the thread's entry in the segment.
        let overhead = unsafe { &*self.overhead };
        let passed = overhead.load(Ordering::Relaxed).wrapping_add(ticks);
        overhead.store(passed, Ordering::Relaxed);
    }

    /// The overhead of the thread so far, in ticks.
    pub fn passed(&self) -> u64 {
        // SAFETY: as above.
        unsafe { &*self.overhead }.load(Ordering::Relaxed)
    }

    /// Counts elapsed ticks as overhead from the time `now` on.
    #[inline(always)]
    pub fn pass_from(&mut self, now: u64) {
        self.since = now;
        self.lock = self.lock_now();
    }

    /// The page's current sequence number, in the format of the field `lock`.
    #[inline(always)]
    fn lock_now(&self) -> u64 {
        let known = |lock| 1 << 32 | u64::from(lock);
        self.sources.page.lock().map_or(0, known)
    }

    /// Adds the ticks from the last reading to `now` to the overhead. If the thread was switched
    /// out in between, adds at most the average: another thread had the processor for the rest.
    /// Returns the rest, in ticks; 0 if the thread was not switched out.
    #[inline(always)]
    pub fn pass_until(&mut self, now: u64) -> u64 {
        /// The last reading has a weight of 1 / `LAST` in the average.
        const LAST: u64 = 8;
        let (ticks, was_out) = self.restart(now);
        if was_out {
            self.pass_wait(ticks)
        } else {
            self.usual = self.usual - self.usual / LAST + ticks / LAST;
            self.pass(ticks);
            0
        }
    }

    /// Adds the part of the ticks that is not a wait, for a thread that was switched out meanwhile.
    /// Returns the ticks of the wait.
    #[inline(always)]
    fn pass_wait(&self, ticks: u64) -> u64 {
        let own = ticks.min(self.usual);
        self.pass(own);
        ticks - own
    }

    /// Counts elapsed ticks from `now` on. Returns the ticks from the last reading to `now`,
    /// limited if it is not known whether the thread was switched out in between, and true if it
    /// was.
    #[inline(always)]
    fn restart(&mut self, now: u64) -> (u64, bool) {
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
        (ticks, was_out)
    }

    /// Asks the kernel for the wanted sources at the exit (bit `n` of `wanted` is source `n`). If
    /// the thread is switched out meanwhile, the exit counts from then on: a call that waits has
    /// not returned yet, and this wait belongs to no other call.
    ///
    /// The kernel often switches a thread out at such a question: when it reads the thread's CPU
    /// time, it notices that the time slice is used up.
    pub(super) fn ask_at_exit(&mut self, wanted: u32) {
        /// The maximum number of questions. The thread is not switched out at each of them.
        const TRIES: usize = 4;
        for _ in 0..TRIES {
            self.sources.ask_at_exit(wanted);
            let now = clock::now();
            let (since, lock) = (self.since, self.lock);
            let (ticks, was_out) = self.restart(now);
            if !was_out {
                // All of it is overhead, which the call's time does not contain.
                (self.since, self.lock) = (since, lock);
                return;
            }
            self.pass_wait(ticks);
            self.sources.begin(now);
        }
    }

    /// Adds the ticks from the last reading to `now` to the overhead, as [`Meter::pass_until`]. For
    /// a thread without a page, adds all of them, including those in which it waited.
    pub fn pass_waiting_until(&mut self, now: u64) {
        if self.lock != 0 {
            self.pass_until(now);
            return;
        }
        self.pass(now.wrapping_sub(self.since));
        self.pass_from(now);
    }

    /// The overhead that times exclude, in ticks; 0 if times are not corrected.
    #[inline(always)]
    pub(super) fn corrected(&self) -> u64 {
        // SAFETY: as above.
        overhead::corrected(unsafe { &*self.overhead })
    }

    /// The lag of the thread clock when a call begins, in ticks.
    #[inline(always)]
    pub(super) fn corrected_at_entry(&self) -> u64 {
        // SAFETY: as above.
        overhead::corrected_at_entry(unsafe { &*self.overhead })
    }

    /// The ticks of a call that ends at the exit passed to [`Meter::begin`].
    ///
    /// # Safety
    /// The activation is valid.
    #[inline(always)]
    pub(super) unsafe fn ticks(&self, top: *mut Activation) -> u64 {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { (*top).start };
        since(start, self.sources.now().wrapping_sub(self.corrected()))
    }

    /// The CPU time of the current call, in ticks. `None` if it is not measured or not known.
    pub(super) fn known_cpu(&self) -> Option<u64> {
        self.knows_cpu.then_some(self.cpu)
    }

    /// The return value of a call of `function` that ends at the exit passed to [`Meter::begin`].
    /// `None` if there is none.
    ///
    /// # Safety
    /// The exit is being processed.
    pub(super) unsafe fn returned(&self, function: u32) -> Option<i64> {
        let Values { slot, vectors } = self.values;
        let details = parameters::detail(function);
        // SAFETY: guaranteed by the caller.
        (slot != 0).then(|| unsafe { value::read(RETURN, details, slot, vectors) })
    }

    /// Resets the meter for another thread.
    pub fn renew(&mut self) {
        self.sources.renew();
    }

    /// Allocates the room for an activation's further sources, if there is memory.
    pub(super) unsafe fn make_room(&mut self, activation: *mut Activation) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if (*activation).more.is_null() {
                (*activation).more = self.room();
            }
        }
    }

    /// Takes room for one activation; null if there is no memory.
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

/// The ticks between two times of a thread clock; 0 if `end` is before `start`, since the clock may
/// have started later.
#[inline(always)]
pub(super) fn since(start: u64, end: u64) -> u64 {
    (end.wrapping_sub(start) as i64).max(0) as u64
}
