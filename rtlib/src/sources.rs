//! What is read at a probe: clocks, counters, arguments and return values. Knows no call.
//!
//! A source is a file here. What it keeps from one reading to the next is a thread's own.

mod answer;
mod block_io;
mod counter;
pub mod cpu;
mod mmap_page;
pub mod page;
mod run_delay;
mod said;
mod usage;
pub mod value;

use core::mem;

use abi::schema::source;

use crate::arch::clock;
use answer::ANSWER;
use counter::Counters;
use mmap_page::MmapPage;

pub use cpu::Cpu;
pub use page::Page;
pub use said::{Said, Silent};

/// What a thread's sources have come to.
#[repr(C)]
pub struct Sources {
    /// Changes each time that the thread is switched out.
    pub page: Page,
    /// CPU time.
    pub cpu: Cpu,
    run_delay: page::Kept,
    block_io: page::Kept,
    context_switches: page::Kept,
    counters: Counters,
    /// When the exit was reached that is being seen to.
    now: u64,
    /// The page's number soon after that.
    lock: Option<u32>,
    /// Which sources have been asked at it, and which of those had an answer.
    asked: u32,
    known: u32,
    at: [Said; source::ALL],
    /// The thread's context switches when [`Sources::has_been_out`] last read them.
    switches: u64,
    /// For what the kernel is asked, to save room on the application's stack.
    answer: [u64; ANSWER],
}

/// What tells CPU time.
pub struct Clocks(Page, Cpu);

impl Sources {
    /// Has the thread be one whose CPU time is known and that is never switched out; what it was.
    pub fn never_switched(&mut self) -> Clocks {
        static PAGE: MmapPage = MmapPage::unused();
        let page = mem::replace(&mut self.page, Page::of(&PAGE));
        let cpu = mem::replace(&mut self.cpu, Cpu::of(&self.page, clock::now()));
        Clocks(page, cpu)
    }

    /// True if the thread has been switched out since the last call; `None` if that is not known. Reads
    /// the kernel's count (getrusage(2)), for threads without a page.
    #[cold]
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    pub fn has_been_out(&mut self) -> Option<bool> {
        let switches = usage::context_switches(&mut self.answer)?;
        Some(mem::replace(&mut self.switches, switches) != switches)
    }

    /// Has its CPU time be that of a thread that runs from now on.
    pub fn run_from_now(&mut self) {
        self.cpu = Cpu::of(&self.page, clock::now());
    }

    /// Puts that back.
    pub fn put_back(&mut self, Clocks(page, cpu): Clocks) {
        self.page = page;
        self.cpu = cpu;
    }

    /// Makes them those of another thread.
    pub fn renew(&mut self) {
        self.page.close();
        self.cpu.forget();
        for kept in [
            &mut self.run_delay,
            &mut self.block_io,
            &mut self.context_switches,
        ] {
            kept.forget();
        }
        self.counters.close();
    }

    /// Begins the readings of an exit that was reached at `now`.
    #[inline(always)]
    pub fn begin(&mut self, now: u64) {
        // What the quick way has read of it stays.
        if self.now == now {
            return;
        }
        self.now = now;
        self.lock = self.page.lock();
        self.asked = 0;
        self.known = 0;
    }

    /// When the exit was reached.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What a source but CPU time says at the exit, the same however often it is asked. Where it says nothing it is an error, with
    /// `ASKS` never [`Silent::Unasked`].
    #[inline(always)]
    pub fn at_exit<const ASKS: bool>(&mut self, number: usize) -> Result<&Said, Silent> {
        let number = number % source::ALL;
        let bit = 1 << number;
        if self.asked & bit == 0 {
            let said = if ASKS {
                self.ask(number)
            } else {
                self.known_at(number, self.now)
            };
            match said {
                Ok(said) => {
                    self.known |= bit;
                    self.at[number] = said;
                }
                Err(Silent::Unasked) if !ASKS => return Err(Silent::Unasked),
                Err(_) => {}
            }
            self.asked |= bit;
        }
        match self.known & bit {
            0 => Err(Silent::Unknown),
            _ => Ok(&self.at[number]),
        }
    }

    /// The same of CPU time.
    #[inline(always)]
    pub fn cpu_at_exit<const ASKS: bool>(&mut self) -> Result<u64, Silent> {
        const BIT: u32 = 1 << source::CPU;
        if self.asked & BIT == 0 {
            let said = if ASKS {
                self.cpu.at(&mut self.page, self.now, self.lock)
            } else {
                self.cpu.known(&self.page, self.now)
            };
            match said {
                Some(said) => {
                    self.known |= BIT;
                    self.at[source::CPU].number = said;
                }
                None if !ASKS => return Err(Silent::Unasked),
                None => {}
            }
            self.asked |= BIT;
        }
        match self.known & BIT {
            0 => Err(Silent::Unknown),
            _ => Ok(self.at[source::CPU].number),
        }
    }

    /// Whether the thread has not been switched out since an entry, at which the time-stamp counter was so far ahead of the
    /// CPU time, up to the exit.
    #[inline(always)]
    pub fn is_steady(&mut self, ahead: u64) -> bool {
        self.cpu.is_ahead(ahead) && self.cpu.known(&self.page, self.now).is_some()
    }

    /// What a source has said at the exit, if it has been asked.
    #[inline(always)]
    pub fn has_said(&self, number: usize) -> Option<&Said> {
        let number = number % source::ALL;
        (self.known & 1 << number != 0).then(|| &self.at[number])
    }

    /// What a source says at `now`, which has just passed, where that is known without asking the kernel.
    #[inline(always)]
    fn known_at(&mut self, number: usize, now: u64) -> Result<Said, Silent> {
        let said = match number {
            source::CLOCK => Some(now),
            source::CPU => self.cpu.known(&self.page, now),
            source::RUN_DELAY => self.run_delay.known(&self.page),
            source::BLOCK_IO => self.block_io.known(&self.page),
            source::CONTEXT_SWITCHES => self.context_switches.known(&self.page),
            source::COUNTER.. => return self.counters.now(number - source::COUNTER, &self.page),
            _ => None,
        };
        said.map(Said::number).ok_or(Silent::Unasked)
    }

    fn ask(&mut self, number: usize) -> Result<Said, Silent> {
        match number {
            source::CLOCK => Ok(Said::number(self.now)),
            source::RUN_DELAY | source::BLOCK_IO | source::CONTEXT_SWITCHES => self
                .ask_kept(number)
                .map(Said::number)
                .ok_or(Silent::Unknown),
            other => {
                self.open(1 << other);
                self.read(other)
            }
        }
    }

    /// A source that changes only when the thread is switched out.
    #[inline(never)]
    fn ask_kept(&mut self, number: usize) -> Option<u64> {
        let (answer, page, lock, exit) = (&mut self.answer, &mut self.page, self.lock, self.now);
        let time = |page: &Page| {
            let passed = clock::now().wrapping_sub(exit);
            // Without a page it is not known whether the thread has been switched out.
            if page.lock().is_none() && passed < cpu::NEAR {
                0
            } else {
                cpu::ns(passed)
            }
        };
        match number {
            source::RUN_DELAY => {
                let read = || run_delay::read(answer);
                self.run_delay.read_at_exit(page, lock, read, time)
            }
            source::BLOCK_IO => {
                let read = || block_io::read(answer);
                self.block_io.read_at_exit(page, lock, read, time)
            }
            _ => {
                let read = || usage::context_switches(answer);
                // The kernel adds 2 each time that it switches the thread in.
                let switches = |page: &Page| {
                    let numbers = page.lock().zip(lock);
                    numbers.map_or(0, |(now, then)| u64::from(now.wrapping_sub(then) / 2))
                };
                let kept = &mut self.context_switches;
                kept.read_at_exit(page, lock, read, switches)
            }
        }
    }

    /// Has those of these sources ready that are counters.
    fn open(&mut self, wanted: u32) {
        for number in source::COUNTER..source::ALL {
            if wanted & 1 << number != 0 {
                self.counters.open(number - source::COUNTER, &mut self.page);
            }
        }
    }

    /// Reads sources at an entry, each given to `keep`; the clock, which is returned, last. Without `ASKS` nothing where
    /// the kernel would have to be asked.
    #[inline(always)]
    pub fn at_entry<const ASKS: bool>(
        &mut self,
        wanted: u32,
        mut keep: impl FnMut(usize, Said),
    ) -> Option<u64> {
        if ASKS {
            return Some(self.ask_at_entry(wanted, keep));
        }
        let now = clock::now();
        for number in source::CPU..source::ALL {
            if wanted & 1 << number == 0 {
                continue;
            }
            match self.known_at(number, now) {
                Ok(said) => keep(number, said),
                Err(Silent::Unasked) => return None,
                Err(Silent::Unknown) => {}
            }
        }
        Some(now)
    }

    fn ask_at_entry(&mut self, wanted: u32, mut keep: impl FnMut(usize, Said)) -> u64 {
        /// Threads are not switched out each time that they read something.
        const TRIES: usize = 4;
        let mut tries = 0;
        if wanted & !(1 << source::CLOCK) != 0 {
            // It also tells whether what measuring takes is all the thread's own.
            self.page.open();
        }
        self.open(wanted);
        loop {
            tries += 1;
            let before = self.page.lock();
            for number in source::CPU + 1..source::ALL {
                if wanted & 1 << number != 0
                    && let Ok(said) = self.read(number)
                {
                    keep(number, said);
                }
            }
            let now = match wanted & 1 << source::CPU {
                0 => clock::now(),
                _ => {
                    let (now, cpu) = self.cpu.now(&mut self.page);
                    if let Some(cpu) = cpu {
                        keep(source::CPU, Said::number(cpu));
                    }
                    now
                }
            };
            // What was read before the thread was switched out is of another time than what was read after that.
            let is_whole = wanted | source::CLOCKS == source::CLOCKS || before == self.page.lock();
            if is_whole || tries == TRIES {
                return now;
            }
        }
    }

    /// What a source says now.
    fn read(&mut self, number: usize) -> Result<Said, Silent> {
        let answer = &mut self.answer;
        let page = &mut self.page;
        let said = match number {
            source::COUNTER.. => return self.counters.now(number - source::COUNTER, page),
            source::RUN_DELAY => self.run_delay.read(page, || run_delay::read(answer)),
            source::BLOCK_IO => self.block_io.read(page, || block_io::read(answer)),
            source::PAGE_FAULTS => usage::page_faults(answer),
            source::MAJOR_FAULTS => usage::major_faults(answer),
            source::CONTEXT_SWITCHES => {
                let read = || usage::context_switches(answer);
                self.context_switches.read(page, read)
            }
            _ => None,
        };
        said.map(Said::number).ok_or(Silent::Unknown)
    }
}
