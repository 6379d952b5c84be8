//! The sources of measurements: clocks, counters, arguments and return values. This layer knows no
//! calls.
//!
//! Each file here is a source. Its state between readings belongs to one thread.

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

/// The state of a thread's sources.
#[repr(C)]
pub struct Sources {
    /// The thread's page, whose sequence number changes each time that the thread is switched out.
    pub page: Page,
    /// The known CPU time of the thread.
    pub cpu: Cpu,
    run_delay: page::Kept,
    block_io: page::Kept,
    context_switches: page::Kept,
    counters: Counters,
    /// The time-stamp counter when the current exit was reached.
    now: u64,
    /// The page's sequence number soon after `now`; `None` without a page.
    lock: Option<u32>,
    /// The sources that have been read for this exit: bit `n` is source `n`.
    asked: u32,
    /// The sources in `asked` that had a value: bit `n` is source `n`.
    known: u32,
    /// The values at this exit of the sources in `known`.
    at: [Said; source::ALL],
    /// The thread's context switches when [`Sources::has_been_out`] last read them.
    switches: u64,
    /// Buffer for answers of the kernel. It saves room on the application's stack.
    answer: [u64; ANSWER],
}

/// A reading of the sources at an entry.
pub struct Entry {
    /// The time-stamp counter after it.
    pub now: u64,
    /// An upper bound of the ticks for which the thread waited while the kernel was asked. All CPU
    /// time of the reading is outside of them.
    pub waited: u64,
}

/// The thread's page and CPU time, as [`Sources::never_switched`] found them.
pub struct Clocks(Page, Cpu);

impl Sources {
    /// Simulates a thread whose CPU time is known and that is never switched out. Returns the
    /// previous state.
    pub fn never_switched(&mut self) -> Clocks {
        static PAGE: MmapPage = MmapPage::unused();
        let page = mem::replace(&mut self.page, Page::of(&PAGE));
        let cpu = mem::replace(&mut self.cpu, Cpu::of(&self.page, clock::now()));
        Clocks(page, cpu)
    }

    /// True if the thread has been switched out since the last call of this function; `None` if
    /// that is not known.
    /// Reads the kernel's count (getrusage(2)), for threads without a page.
    #[cold]
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    pub fn has_been_out(&mut self) -> Option<bool> {
        let switches = usage::context_switches(&mut self.answer)?;
        Some(mem::replace(&mut self.switches, switches) != switches)
    }

    /// Sets the thread's CPU time to 0 from now on, as for a new thread.
    pub fn run_from_now(&mut self) {
        self.cpu = Cpu::of(&self.page, clock::now());
    }

    /// Restores the state returned by [`Sources::never_switched`].
    pub fn put_back(&mut self, Clocks(page, cpu): Clocks) {
        self.page = page;
        self.cpu = cpu;
    }

    /// Resets the sources for another thread.
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

    /// Starts the readings of an exit that was reached at `now`.
    #[inline(always)]
    pub fn begin(&mut self, now: u64) {
        // Readings by the fast path for the same exit stay.
        if self.now == now {
            return;
        }
        self.now = now;
        self.lock = self.page.lock();
        self.asked = 0;
        self.known = 0;
    }

    /// The time-stamp counter when the current exit was reached.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The value that source `number`, other than CPU time, had at the exit. Every call for the
    /// same exit returns the same value.
    ///
    /// # Errors
    /// [`Silent::Unknown`] if the source has no value. Without `ASKS`, [`Silent::Unasked`] if the
    /// kernel must be asked for it.
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

    /// The CPU time at the exit, in ticks; errors as for [`Sources::at_exit`].
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

    /// True if the thread has not been switched out between an entry and the exit. `ahead` is the
    /// time-stamp counter minus the CPU time at the entry.
    #[inline(always)]
    pub fn is_steady(&mut self, ahead: u64) -> bool {
        self.cpu.is_ahead(ahead) && self.cpu.known(&self.page, self.now).is_some()
    }

    /// The value of source `number` at the exit. Reads nothing: `None` if the source has not been
    /// read for this exit, or had no value.
    #[inline(always)]
    pub fn has_said(&self, number: usize) -> Option<&Said> {
        let number = number % source::ALL;
        (self.known & 1 << number != 0).then(|| &self.at[number])
    }

    /// The value of source `number` at `now`, a moment ago.
    ///
    /// # Errors
    /// [`Silent::Unasked`] if the kernel must be asked for the value; [`Silent::Unknown`] if it
    /// cannot be determined.
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

    /// The value of source `number`, which is neither clock nor CPU time, at the exit. Asks the
    /// kernel if necessary.
    fn ask(&mut self, number: usize) -> Result<Said, Silent> {
        self.open(1 << number);
        self.read_of(number, self.now, self.lock)
    }

    /// Reads the wanted sources at the exit (bit `n` of `wanted` is source `n`), and asks the
    /// kernel if necessary.
    pub fn ask_at_exit(&mut self, wanted: u32) {
        for number in source::CPU..source::ALL {
            if wanted & 1 << number == 0 {
                continue;
            }
            if number == source::CPU {
                let _ = self.cpu_at_exit::<true>();
            } else {
                let _ = self.at_exit::<true>(number);
            }
        }
    }

    /// The value at `then`, a moment ago, of source `number`, one that changes only when the thread
    /// is switched out. `lock` is the page's number soon after `then`. `None` if the kernel does
    /// not give the value.
    #[inline(never)]
    fn kept_of(&mut self, number: usize, then: u64, lock: Option<u32>) -> Option<u64> {
        let (answer, page) = (&mut self.answer, &mut self.page);
        let time = |page: &Page| {
            let passed = clock::now().wrapping_sub(then);
            // Without a page it is unknown if the thread has been switched out.
            if page.lock().is_none() && passed < cpu::NEAR {
                0
            } else {
                cpu::ns(passed)
            }
        };
        match number {
            source::RUN_DELAY => {
                let read = || run_delay::read(answer);
                self.run_delay.read_of(page, lock, read, time)
            }
            source::BLOCK_IO => {
                let read = || block_io::read(answer);
                self.block_io.read_of(page, lock, read, time)
            }
            _ => {
                let read = || usage::context_switches(answer);
                // The kernel increments the number by 2 each time that it switches the thread in.
                let switches = |page: &Page| {
                    let numbers = page.lock().zip(lock);
                    numbers.map_or(0, |(now, then)| u64::from(now.wrapping_sub(then) / 2))
                };
                self.context_switches.read_of(page, lock, read, switches)
            }
        }
    }

    /// Opens those of the wanted sources that are counters. Bit `n` of `wanted` is source `n`.
    fn open(&mut self, wanted: u32) {
        for number in source::COUNTER..source::ALL {
            if wanted & 1 << number != 0 {
                self.counters.open(number - source::COUNTER, &mut self.page);
            }
        }
    }

    /// Reads the sources at an entry (bit `n` of `wanted` is source `n`), and passes the number and
    /// the value of each to `keep`, except the clock and sources without a value. Without `ASKS`,
    /// returns `None` if the kernel must be asked; some values may have been passed by then.
    #[inline(always)]
    pub fn at_entry<const ASKS: bool>(
        &mut self,
        wanted: u32,
        mut keep: impl FnMut(usize, Said),
    ) -> Option<Entry> {
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
        Some(Entry { now, waited: 0 })
    }

    /// Reads the sources as [`Sources::at_entry`] does, and asks the kernel if necessary.
    fn ask_at_entry(&mut self, wanted: u32, mut keep: impl FnMut(usize, Said)) -> Entry {
        if wanted & !(1 << source::CLOCK) != 0 {
            // The page also shows if all of the measurement overhead is the thread's own.
            self.page.open();
        }
        self.open(wanted);
        let begin = clock::now();
        let lock = self.page.lock();
        for number in source::CPU + 1..source::ALL {
            if wanted & 1 << number != 0
                && let Ok(said) = self.read_of(number, begin, lock)
            {
                keep(number, said);
            }
        }
        if wanted & 1 << source::CPU == 0 {
            let now = clock::now();
            return Entry {
                now,
                waited: now.wrapping_sub(begin),
            };
        }
        let before = self.cpu.known_ahead();
        let (now, cpu) = self.cpu.now(&mut self.page);
        if let Some(cpu) = cpu {
            keep(source::CPU, Said::number(cpu));
        }
        let ahead = before.zip(self.cpu.known_ahead());
        Entry {
            now,
            waited: ahead.map_or(0, |(before, after)| after.wrapping_sub(before)),
        }
    }

    /// The value at `then`, a moment ago, of source `number`, which is neither clock nor CPU time.
    /// Asks the kernel if necessary. `lock` is the page's number soon after `then`.
    fn read_of(&mut self, number: usize, then: u64, lock: Option<u32>) -> Result<Said, Silent> {
        let answer = &mut self.answer;
        let said = match number {
            source::COUNTER.. => {
                return self.counters.now(number - source::COUNTER, &self.page);
            }
            source::PAGE_FAULTS => usage::page_faults(answer),
            source::MAJOR_FAULTS => usage::major_faults(answer),
            source::RUN_DELAY | source::BLOCK_IO | source::CONTEXT_SWITCHES => {
                self.kept_of(number, then, lock)
            }
            _ => None,
        };
        said.map(Said::number).ok_or(Silent::Unknown)
    }
}
