//! CPU time of the thread, without a system call as long as it is not switched out: until then it grows as the time-stamp
//! counter does.

use abi::image::TICKS_SHIFT;
use core::sync::atomic::Ordering;

use super::answer::ANSWER;
use super::page::Page;
use super::usage;
use crate::arch::clock;
use crate::os::parameters::ipath_parameters;
use crate::os::sys;

/// What is known of a thread's CPU time.
#[repr(C)]
pub struct Cpu {
    /// The time-stamp counter less the CPU time, in ticks, as long as the page's number is `lock`. It never shrinks: no more CPU time than
    /// time passes, also where the two clocks are read one after the other.
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
    answer: [u64; ANSWER],
    /// See [`Doubt`].
    doubt: Option<Doubt>,
    /// What was said last. It is never less after that, also where the kernel has been asked again: so what a call has taken
    /// is no more than what the one that encloses it has.
    said: u64,
}

/// The number of the page and whether that is known, in one word, as the hand-written ways look at them.
pub const LOCK: usize = core::mem::offset_of!(Cpu, lock);
const _: () = assert!(core::mem::offset_of!(Cpu, is_known) == LOCK + 4 && LOCK.is_multiple_of(8));

/// Ticks after which the kernel is asked again in any case: what a hypervisor takes from a thread (steal time) is not seen
/// from inside. Some 100 microseconds, of which asking takes a hundredth at most.
pub const FRESH: u64 = 1 << 18;

/// Some microseconds. A longer reading was interrupted, for instance by a hypervisor, and the
/// moment of the kernel's answer is less certain.
pub const NEAR: u64 = 1 << 14;

/// That the thread seems to have been switched out while its page said nothing: less CPU time than time has passed. A program can have
/// its events disabled (PR_TASK_PERF_EVENTS_DISABLE, prctl(2)); or a hypervisor has taken that time, of which no page tells.
struct Doubt {
    /// The number of the page, which is not doubted any more when it has another.
    lock: u32,
    /// Context switches of the thread by then.
    switches: u64,
}

impl Cpu {
    /// That of a thread with this page, which has run for no time.
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

    /// Makes it that of another thread.
    pub fn forget(&mut self) {
        self.is_known = 0;
        self.said = 0;
        self.last = 0;
        self.doubt = None;
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
    ///
    /// The thread may have lost its processor between `now` and the kernel's answer, and before the page's
    /// number was read. Then its CPU time at `now` is that of the answer.
    pub fn at(&mut self, page: &mut Page, now: u64, lock: Option<u32>) -> Option<u64> {
        if let Some(known) = self.known(page, now) {
            return Some(known);
        }
        let before = (self.is_known != 0).then_some(self.offset);
        self.ask(page)?;
        // Where the thread has been switched out since, it has done nothing but come here.
        let is_since = self.asked.wrapping_sub(now) >= NEAR
            || lock != page.lock()
            || lock.is_some_and(|lock| lock != self.lock);
        let then = match (is_since, before) {
            (false, _) => now,
            (true, None) => self.asked,
            // And it is no more than if it had run until then.
            (true, Some(before)) => {
                let grown = self.offset.wrapping_sub(before);
                self.asked.min(now.wrapping_add(grown))
            }
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
        /// No number that a page has between two changes: they are even.
        const NEVER: u32 = 1;
        let (mut lock, mut now, mut cpu) = (page.lock(), 0, 0);
        let mut is_whole = false;
        for _ in 0..TRIES {
            let before = clock::now();
            cpu = ticks(sys::thread_cpu_time(self.answer.first_chunk_mut()?)?);
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
        let mut offset = now.wrapping_sub(cpu);
        if self.is_known != 0 && (offset.wrapping_sub(self.offset) as i64) < 0 {
            offset = self.offset;
        }
        if self.last != 0 {
            // By what has been known until now, and once: it is no time after the next switch.
            self.say(self.last);
            self.last = 0;
        }
        if let Some(lock) = lock.filter(|&lock| self.is_known != 0 && lock == self.lock) {
            self.check(page, lock, now, offset);
        }
        self.offset = offset;
        self.asked = now;
        // Where the thread has been switched out since, this is not of now.
        self.lock = if is_whole { lock.unwrap_or(0) } else { NEVER };
        self.is_known = 1;
        Some(())
    }

    /// Does without a page that has not told that the thread was switched out. It has had this number since the kernel was asked last.
    fn check(&mut self, page: &mut Page, lock: u32, now: u64, offset: u64) {
        /// Of the time that has passed, more than which is doubted.
        const MOST: u64 = 2;
        let passed = now.wrapping_sub(self.asked);
        let is_short = offset.wrapping_sub(self.offset) as i64 > (passed / MOST) as i64;
        let doubt = self.doubt.take().filter(|doubt| doubt.lock == lock);
        if !is_short && doubt.is_none() {
            return;
        }
        let switches = usage::context_switches(&mut self.answer);
        match (switches, doubt) {
            // It is of no use to ask where the kernel does not say.
            (None, _) => page.refuse(),
            (Some(now), Some(then)) if now != then.switches && page.lock() == Some(lock) => {
                page.refuse()
            }
            (Some(switches), _) => self.doubt = Some(Doubt { lock, switches }),
        }
    }
}

/// ns in ticks.
fn ticks(ns: u64) -> u64 {
    let ticks_per_ns = ipath_parameters.ticks_per_ns.load(Ordering::Relaxed);
    ((u128::from(ns) * u128::from(ticks_per_ns)) >> TICKS_SHIFT) as u64
}

/// Ticks in ns.
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

    /// Ticks count as ns, and system calls may be made.
    fn begin() {
        crate::os::parameters::allow_system_calls();
        let per_ns = &ipath_parameters.ticks_per_ns;
        per_ns.store(1 << TICKS_SHIFT, Ordering::Relaxed);
    }

    /// Has the kernel asked after a time; as many times as it takes until the thread has not been switched out meanwhile.
    fn ask_later(cpu: &mut Cpu, page: &mut Page, hypervisor: bool) {
        loop {
            let lock = page.lock();
            let until = clock::now() + FRESH;
            while clock::now() < until {}
            if hypervisor {
                // As if none of that had been this thread's.
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
        // SAFETY: of this thread's events, of which there is this one.
        unsafe { libc::prctl(libc::PR_TASK_PERF_EVENTS_DISABLE) };
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(5));
            let lock = page.lock();
            cpu.at(&mut page, clock::now(), lock).expect("known");
        }
        assert_eq!(page.lock(), None, "it is still believed");
    }

    /// A thread that waits between the clock and the kernel's answer has used no CPU time meanwhile, whether its page
    /// shows that or not.
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
            // Ticks count as ns here, and are shorter.
            assert!(
                (own..own + NS).contains(&found),
                "{has_page}: {found} of {own}"
            );
            page.close();
        }
    }

    /// What an exit that the hand-written way saw to has left behind is of the time before the thread was switched out.
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
