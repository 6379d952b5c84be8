//! CPU time of the thread. No system call is needed while the thread is not switched out: until
//! then, CPU time grows with the time-stamp counter.

use abi::image::TICKS_SHIFT;
use core::sync::atomic::Ordering;

use super::answer::ANSWER;
use super::page::Page;
use super::usage;
use crate::arch::clock;
use crate::os::parameters::ipath_parameters;
use crate::os::sys;

/// The known CPU time of a thread.
#[repr(C)]
pub struct Cpu {
    /// The time-stamp counter minus the CPU time, in ticks, while the page's number is `lock`. It
    /// never decreases, even though the two clocks are read one after the other, because CPU time
    /// cannot grow faster than time.
    pub offset: u64,
    /// The time when the kernel was last asked, in ticks.
    pub asked: u64,
    /// The sequence number of the thread's page for which `offset` holds.
    lock: u32,
    /// 1 once the kernel has been asked.
    is_known: u32,
    /// The time-stamp counter at the last exit on the assembly fast path, which does not call
    /// `say`; 0 if there was none since the kernel was last asked.
    pub last: u64,
    /// Buffer for the kernel's answer.
    answer: [u64; ANSWER],
    /// A suspicion that the page has missed a switch; `None` without one.
    doubt: Option<Doubt>,
    /// The last CPU time returned, in ticks. Later values are never less, even after the kernel was
    /// asked again. So the CPU time of a call does not exceed that of its caller.
    said: u64,
}

/// Offset in [`Cpu`] of `lock` and `is_known`, which the assembly fast paths read as one word.
pub const LOCK: usize = core::mem::offset_of!(Cpu, lock);
const _: () = assert!(core::mem::offset_of!(Cpu, is_known) == LOCK + 4 && LOCK.is_multiple_of(8));

/// Maximum age of the kernel's answer, in ticks. Time taken from a thread by a hypervisor (steal
/// time) is invisible from inside. The limit is about 100 microseconds, so asking takes at most a
/// hundredth of the time.
pub const FRESH: u64 = 1 << 18;

/// Maximum duration of a reading of the kernel's clock, in ticks: a few microseconds. A longer
/// reading was interrupted, for instance by a hypervisor, and the moment of the kernel's answer is
/// less certain.
pub const NEAR: u64 = 1 << 14;

/// A suspicion that the thread was switched out without a change of its page, because less CPU time
/// than time has passed. A program can have its events disabled (PR_TASK_PERF_EVENTS_DISABLE,
/// prctl(2)). Or a hypervisor has taken that time, which no page shows.
struct Doubt {
    /// The page's sequence number. Another number ends the suspicion.
    lock: u32,
    /// The thread's context switches when the suspicion arose.
    switches: u64,
}

impl Cpu {
    /// The CPU time of a thread with this page that has not run yet.
    pub fn of(page: &Page, now: u64) -> Self {
        Self {
            offset: now,
            asked: now,
            lock: page.lock().unwrap_or(0),
            is_known: 1,
            last: 0,
            answer: [0; ANSWER],
            doubt: None,
            said: 0,
        }
    }

    /// Forgets the CPU time, for another thread.
    pub fn forget(&mut self) {
        self.is_known = 0;
        self.said = 0;
        self.last = 0;
        self.doubt = None;
    }

    /// True if the time-stamp counter minus the CPU time is known to be `ticks`.
    #[inline(always)]
    pub fn is_ahead(&self, ticks: u64) -> bool {
        self.is_known != 0 && self.offset == ticks
    }

    /// The time-stamp counter minus the CPU time, when the kernel was last asked, in ticks. It
    /// grows by the time for which the thread does not run. `None` if the kernel has not been
    /// asked.
    pub fn known_ahead(&self) -> Option<u64> {
        (self.is_known != 0).then_some(self.offset)
    }

    /// The CPU time at `now`, a moment ago, in ticks. `None` if the kernel must be asked.
    #[inline(always)]
    pub fn known(&mut self, page: &Page, now: u64) -> Option<u64> {
        self.holds(page, now).then(|| self.say(now))
    }

    /// The CPU time at `now`, in ticks, never less than a value returned before.
    #[inline(always)]
    fn say(&mut self, now: u64) -> u64 {
        self.said = self.said.max(now.wrapping_sub(self.offset));
        self.said
    }

    /// The CPU time at `now`, a moment ago, in ticks. `lock` is the page's sequence number soon
    /// after that. `None` if the kernel does not give the CPU time.
    ///
    /// The thread may have lost its processor between `now` and the kernel's answer, and before the
    /// page's number was read. Then its CPU time at `now` is that of the answer.
    pub fn at(&mut self, page: &mut Page, now: u64, lock: Option<u32>) -> Option<u64> {
        if let Some(known) = self.known(page, now) {
            return Some(known);
        }
        let before = (self.is_known != 0).then_some(self.offset);
        self.ask(page)?;
        // A thread that was switched out in between has done nothing else than get here.
        let is_since = self.asked.wrapping_sub(now) >= NEAR
            || lock != page.lock()
            || lock.is_some_and(|lock| lock != self.lock);
        let then = match (is_since, before) {
            (false, _) => now,
            (true, None) => self.asked,
            // The CPU time is at most what it would be if the thread had run until then.
            (true, Some(before)) => {
                let grown = self.offset.wrapping_sub(before);
                self.asked.min(now.wrapping_add(grown))
            }
        };
        Some(self.say(then))
    }

    /// The time, and the CPU time at it, in ticks. The CPU time is `None` if the kernel does not
    /// give it, or if the thread was switched out at each of several readings.
    pub fn now(&mut self, page: &mut Page) -> (u64, Option<u64>) {
        /// The maximum number of readings. It is unlikely that the thread is switched out at each.
        const TRIES: usize = 16;
        page.open();
        for _ in 0..TRIES {
            let now = clock::now();
            if let Some(known) = self.known(page, now) {
                return (now, Some(known));
            }
            if self.ask(page).is_none() {
                return (clock::now(), None);
            }
            if page.lock().is_none() {
                let now = clock::now();
                return (now, Some(self.say(now)));
            }
        }
        (clock::now(), None)
    }

    /// True if the thread has not been switched out since the kernel was asked, less than [`FRESH`]
    /// ticks before `now`. The clock is read before the page, so this holds up to the time read.
    #[inline(always)]
    fn holds(&self, page: &Page, now: u64) -> bool {
        self.is_known != 0 && page.lock() == Some(self.lock) && now.wrapping_sub(self.asked) < FRESH
    }

    /// Asks the kernel for the CPU time. `None` if it refuses.
    fn ask(&mut self, page: &mut Page) -> Option<()> {
        /// The maximum number of readings. The thread is not switched out at every one.
        const TRIES: usize = 4;
        /// A sequence number that the page never has between two writes, because those are even.
        const NEVER: u32 = 1;
        let (mut lock, mut now, mut cpu) = (page.lock(), 0, 0);
        let mut is_whole = false;
        for _ in 0..TRIES {
            let before = clock::now();
            cpu = ticks(sys::thread_cpu_time(self.answer.first_chunk_mut()?)?);
            let after = clock::now();
            // The kernel has read its clock about halfway.
            now = before.midpoint(after);
            let again = page.lock();
            is_whole = again == lock;
            if is_whole && after.wrapping_sub(before) < NEAR {
                break;
            }
            lock = again;
        }
        let mut offset = now.wrapping_sub(cpu);
        if self.is_known != 0 && (offset.wrapping_sub(self.offset) as i64) < 0 {
            offset = self.offset;
        }
        if self.last != 0 {
            // Evaluated by the old offset, and once only: after the next switch it would be wrong.
            self.say(self.last);
            self.last = 0;
        }
        if let Some(lock) = lock.filter(|&lock| self.is_known != 0 && lock == self.lock) {
            self.check(page, lock, now, offset);
        }
        self.offset = offset;
        self.asked = now;
        // If the thread was switched out during the reading, it is not valid for the current
        // number.
        self.lock = if is_whole { lock.unwrap_or(0) } else { NEVER };
        self.is_known = 1;
        Some(())
    }

    /// Drops a page that has missed a switch. The page has had the number `lock` since the kernel
    /// was last asked.
    fn check(&mut self, page: &mut Page, lock: u32, now: u64, offset: u64) {
        /// The fraction of the elapsed time that may be missing without suspicion is 1 /
        /// `DOUBTED_FRACTION`.
        const DOUBTED_FRACTION: u64 = 2;
        let passed = now.wrapping_sub(self.asked);
        let is_short = offset.wrapping_sub(self.offset) as i64 > (passed / DOUBTED_FRACTION) as i64;
        let doubt = self.doubt.take().filter(|doubt| doubt.lock == lock);
        if !is_short && doubt.is_none() {
            return;
        }
        let switches = usage::context_switches(&mut self.answer);
        match (switches, doubt) {
            // Without an answer, it is useless to ask again.
            (None, _) => page.refuse(),
            (Some(now), Some(then)) if now != then.switches && page.lock() == Some(lock) => {
                page.refuse()
            }
            (Some(switches), _) => self.doubt = Some(Doubt { lock, switches }),
        }
    }
}

/// Converts ns to ticks.
fn ticks(ns: u64) -> u64 {
    let ticks_per_ns = ipath_parameters.ticks_per_ns.load(Ordering::Relaxed);
    ((u128::from(ns) * u128::from(ticks_per_ns)) >> TICKS_SHIFT) as u64
}

/// Converts ticks to ns; 0 if the factor is not known.
pub fn ns(ticks: u64) -> u64 {
    const BITS: u32 = 16;
    let ticks_per_ns = ipath_parameters.ticks_per_ns.load(Ordering::Relaxed);
    let per_ns = ticks_per_ns >> (TICKS_SHIFT - BITS);
    (ticks << BITS).checked_div(per_ns).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NS: u64 = 1_000_000_000;

    /// Makes a tick count as a ns, and allows system calls.
    fn begin() {
        crate::os::parameters::allow_system_calls();
        let per_ns = &ipath_parameters.ticks_per_ns;
        per_ns.store(1 << TICKS_SHIFT, Ordering::Relaxed);
    }

    /// Asks the kernel some time later. Repeats that until the thread was not switched out
    /// meanwhile.
    fn ask_later(cpu: &mut Cpu, page: &mut Page, hypervisor: bool) {
        loop {
            let lock = page.lock();
            let until = clock::now() + FRESH;
            while clock::now() < until {}
            if hypervisor {
                // As if a second of that time was not this thread's.
                cpu.offset = cpu.offset.wrapping_sub(NS);
            }
            cpu.at(page, clock::now(), lock).expect("known");
            if page.lock() == lock {
                return;
            }
        }
    }

    #[test]
    fn a_page_is_not_doubted_for_what_a_hypervisor_takes() {
        begin();
        let mut page = Page::own();
        let mut cpu = Cpu::of(&page, clock::now());
        for round in 0..20 {
            ask_later(&mut cpu, &mut page, round % 2 == 0);
        }
        assert!(page.lock().is_some());
        page.close();
    }

    #[test]
    fn a_page_of_disabled_events_is_not_believed() {
        begin();
        let mut page = Page::own();
        let mut cpu = Cpu::of(&page, clock::now());
        let lock = page.lock();
        cpu.at(&mut page, clock::now(), lock).expect("known");
        // SAFETY: it affects only the events of this thread, of which there is this one.
        unsafe { libc::prctl(libc::PR_TASK_PERF_EVENTS_DISABLE) };
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(5));
            let lock = page.lock();
            cpu.at(&mut page, clock::now(), lock).expect("known");
        }
        assert_eq!(page.lock(), None, "it is still believed");
    }

    /// A thread that waits between the clock and the kernel's answer uses no CPU time meanwhile,
    /// even if its page does not show it.
    #[test]
    fn a_thread_switched_out_after_the_clock_keeps_its_cpu_time() {
        begin();
        for has_page in [false, true] {
            let mut page = if has_page { Page::own() } else { Page::none() };
            let mut cpu = Cpu::of(&page, clock::now());
            cpu.forget();
            let lock = page.lock();
            let first = cpu.at(&mut page, clock::now(), lock);
            let began = sys::thread_cpu_time(cpu.answer.first_chunk_mut().expect("room"));
            let until = clock::now() + 20 * FRESH;
            while clock::now() < until {}
            let now = clock::now();
            let ended = sys::thread_cpu_time(cpu.answer.first_chunk_mut().expect("room"));
            std::thread::sleep(Duration::from_millis(20));
            let lock = page.lock();
            let found = cpu.at(&mut page, now, lock).expect("known") - first.expect("known");
            let own = ended.expect("known") - began.expect("known");
            // A tick counts as a ns here, and is shorter.
            assert!(
                (own..own + NS).contains(&found),
                "{has_page}: {found} of {own}"
            );
            page.close();
        }
    }

    /// An exit on the assembly fast path belongs to the time before the thread was switched out.
    #[test]
    fn an_exit_long_ago_says_nothing_of_now() {
        begin();
        let mut page = Page::none();
        let mut cpu = Cpu::of(&page, clock::now());
        cpu.forget();
        let first = cpu.at(&mut page, clock::now(), None).expect("known");
        cpu.last = clock::now();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(40));
            let now = cpu.at(&mut page, clock::now(), None).expect("known");
            assert!(now.wrapping_sub(first) < 1 << 40, "{now} after {first}");
        }
    }
}
