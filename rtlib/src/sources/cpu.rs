//! CPU time of the thread, without a system call as long as it is not switched out: until then it grows as the time-stamp
//! counter does.

use abi::image::TICKS_SHIFT;
use core::sync::atomic::Ordering;

use super::page::Page;
use crate::arch::clock;
use crate::os::parameters::ipath_parameters;
use crate::os::sys;

/// What is known of a thread's CPU time.
#[repr(C)]
pub struct Cpu {
    /// The time-stamp counter less the CPU time, in ticks, as long as the page's number is `lock`.
    pub offset: u64,
    /// When the kernel was asked.
    pub asked: u64,
    /// See `offset`.
    lock: u32,
    /// 1 once the kernel has been asked.
    is_known: u32,
    /// When an exit was reached last that the hand-written way saw to, which says nothing.
    pub last: u64,
    /// What it has answered.
    answer: [u64; 2],
    /// What was said last. It is never less after that, also where the kernel has been asked again: so what a call has taken
    /// is no more than what the one that encloses it has.
    said: u64,
}

/// The number of the page and whether that is known, in one word, as the hand-written ways look at them.
pub const LOCK: usize = core::mem::offset_of!(Cpu, lock);
const _: () = assert!(core::mem::offset_of!(Cpu, is_known) == LOCK + 4 && LOCK.is_multiple_of(8));

/// Ticks after which the kernel is asked again in any case: what a hypervisor takes from a thread (steal time) is not seen
/// from inside. Some tens of milliseconds.
pub const FRESH: u64 = 1 << 26;

impl Cpu {
    /// That of a thread with this page, which has run for no time.
    pub fn of(page: &Page, now: u64) -> Self {
        Self {
            offset: now,
            asked: now,
            lock: page.lock().unwrap_or(0),
            is_known: 1,
            last: 0,
            answer: [0; 2],
            said: 0,
        }
    }

    /// Makes it that of another thread.
    pub fn forget(&mut self) {
        self.is_known = 0;
        self.said = 0;
        self.last = 0;
    }

    /// The time-stamp counter less the CPU time, as known.
    #[inline(always)]
    pub fn is_ahead(&self, ticks: u64) -> bool {
        self.is_known != 0 && self.offset == ticks
    }

    /// The CPU time at `now`, which has just passed, where the kernel need not be asked.
    #[inline(always)]
    pub fn known(&mut self, page: &Page, now: u64) -> Option<u64> {
        self.holds(page, now).then(|| self.say(now))
    }

    /// The CPU time at `now`.
    #[inline(always)]
    fn say(&mut self, now: u64) -> u64 {
        self.said = self.said.max(now.wrapping_sub(self.offset));
        self.said
    }

    /// The CPU time at `now`, which has just passed; the page had this number soon after.
    pub fn at(&mut self, page: &mut Page, now: u64, lock: Option<u32>) -> Option<u64> {
        if let Some(known) = self.known(page, now) {
            return Some(known);
        }
        self.ask(page)?;
        // Where the thread has been switched out since, it has done nothing but come here.
        let then = match lock == page.lock() && lock.is_none_or(|lock| lock == self.lock) {
            true => now,
            false => self.asked,
        };
        Some(self.say(then))
    }

    /// The time, and the CPU time at it.
    pub fn now(&mut self, page: &mut Page) -> (u64, Option<u64>) {
        /// Threads are not switched out each time that they have just asked.
        const TRIES: usize = 4;
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

    /// Whether the thread has not been switched out since the kernel was asked. The clock is read before: the thread has
    /// not been switched out until then.
    #[inline(always)]
    fn holds(&self, page: &Page, now: u64) -> bool {
        self.is_known != 0 && page.lock() == Some(self.lock) && now.wrapping_sub(self.asked) < FRESH
    }

    /// Asks the kernel.
    fn ask(&mut self, page: &mut Page) -> Option<()> {
        /// As above.
        const TRIES: usize = 4;
        /// Some microseconds. What takes longer has been interrupted, by a hypervisor for instance, and when the kernel has
        /// looked is not known so well.
        const NEAR: u64 = 1 << 14;
        /// No number that a page has between two changes: they are even.
        const NEVER: u32 = 1;
        let (mut lock, mut now, mut cpu) = (page.lock(), 0, 0);
        let mut is_whole = false;
        for _ in 0..TRIES {
            let before = clock::now();
            cpu = ticks(sys::thread_cpu_time(&mut self.answer)?);
            let after = clock::now();
            // The kernel has looked about halfway.
            now = before.midpoint(after);
            let again = page.lock();
            is_whole = again == lock;
            if is_whole && after.wrapping_sub(before) < NEAR {
                break;
            }
            lock = again;
        }
        let offset = now.wrapping_sub(cpu);
        if self.last != 0 {
            // By what has been known until now, and once: it is no time after the next switch.
            self.say(self.last);
            self.last = 0;
        }
        if self.is_known != 0 && lock == Some(self.lock) && lock.is_some() {
            self.check(page, now, offset);
        }
        self.offset = offset;
        self.asked = now;
        // Where the thread has been switched out since, this is not of now.
        self.lock = match is_whole {
            true => lock.unwrap_or(0),
            false => NEVER,
        };
        self.is_known = 1;
        Some(())
    }

    /// Does without a page that has not told that the thread was switched out: a program can have its events disabled
    /// (PR_TASK_PERF_EVENTS_DISABLE, prctl(2)).
    fn check(&self, page: &mut Page, now: u64, offset: u64) {
        /// More than half of the time, which is more than what a hypervisor takes.
        const MOST: u64 = 2;
        let passed = now.wrapping_sub(self.asked);
        if offset.wrapping_sub(self.offset) as i64 > (passed / MOST) as i64 {
            page.refuse();
        }
    }
}

/// ns in ticks.
fn ticks(ns: u64) -> u64 {
    let ticks_per_ns = ipath_parameters.ticks_per_ns.load(Ordering::Relaxed);
    ((u128::from(ns) * u128::from(ticks_per_ns)) >> TICKS_SHIFT) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What an exit that the hand-written way saw to has left behind is of the time before the thread was switched out.
    #[test]
    fn an_exit_long_ago_says_nothing_of_now() {
        crate::os::parameters::allow_system_calls();
        let per_ns = &ipath_parameters.ticks_per_ns;
        per_ns.store(1 << TICKS_SHIFT, Ordering::Relaxed);
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
