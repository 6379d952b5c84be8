//! Counters of the processor, read from the page of the thread's perf event.
//!
//! A processor has few hardware counters. If more events are requested, the kernel counts each for
//! part of the time. So the growth during a call is scaled to all of the time that its thread ran
//! ([`Said::since`]).

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use abi::schema::source::COUNTERS;

use super::mmap_page::{MmapPage, Reading};
use super::page::Page;
use super::said::{Said, Silent};
use crate::arch::{clock, counter};
use crate::os::{memory, parameters, shared, sys};

/// A thread's counters.
#[repr(C)]
pub struct Counters {
    of: [Counter; COUNTERS],
}

/// A counter of a thread.
#[repr(C)]
struct Counter {
    /// The page of the event, which stays open while it is mapped; null if there is none.
    page: *const MmapPage,
    /// The time of this page minus that of the thread's dummy page, in ns.
    ahead: u64,
    /// [`Reading::enabled`] at the last reading, in ns.
    enabled: u64,
    /// [`Reading::running`] at the last reading, in ns.
    running: u64,
    /// The page's sequence number at the last reading.
    lock: u32,
    /// 1 if the counter is not available.
    is_refused: u32,
}

impl Counters {
    /// The current value of counter `number`, without a system call. `thread` is the thread's dummy
    /// page.
    ///
    /// # Errors
    /// [`Silent::Unasked`] if the counter must be opened first; [`Silent::Unknown`] if that was
    /// refused, or if the value cannot be read.
    #[inline(always)]
    pub fn now(&mut self, number: usize, thread: &Page) -> Result<Said, Silent> {
        let counter = &mut self.of[number % COUNTERS];
        if counter.page.is_null() {
            return Err(match counter.is_refused {
                0 => Silent::Unasked,
                _ => Silent::Unknown,
            });
        }
        // SAFETY: the page stays mapped as long as the address is here.
        let page = unsafe { &*counter.page };
        // SAFETY: the page says that the counter is the thread's to read.
        let read = |index| unsafe { counter::read(index) };
        let reading = page.read(read, clock::now).ok_or(Silent::Unknown)?;
        if reading.lock != counter.lock {
            counter.tell(number, &reading);
        }
        counter
            .said(&reading, || thread.time())
            .ok_or(Silent::Unknown)
    }

    /// Opens counter `number` and the page `thread` for the calling thread, unless the counter is
    /// open or was refused before.
    pub fn open(&mut self, number: usize, thread: &mut Page) {
        let counter = &mut self.of[number % COUNTERS];
        if !counter.page.is_null() || counter.is_refused != 0 {
            return;
        }
        thread.open();
        let page = sys::own_event(parameters::counter(number))
            .and_then(|event| memory::map_pages_of(&event, 1));
        match page {
            Some(page) => counter.begin(page as *const MmapPage, thread),
            None => counter.refuse(number),
        }
    }

    /// Closes the counters, for another thread.
    pub fn close(&mut self) {
        self.of.iter_mut().for_each(Counter::close);
    }
}

impl Counter {
    /// Starts using the mapped page of the counter's event.
    fn begin(&mut self, page: *const MmapPage, thread: &Page) {
        self.page = page;
        (self.enabled, self.running, self.lock) = (0, 0, 0);
        // SAFETY: the page has just been mapped, and stays while the address is here.
        let time = unsafe { (*page).time(clock::now) };
        let ahead = time.zip(thread.time());
        self.ahead = ahead.map_or(0, |(own, other)| own.wrapping_sub(other));
    }

    /// Notes that the counter is not available to this thread.
    fn refuse(&mut self, number: usize) {
        self.is_refused = 1;
        if shared::is_mapped() {
            shared::header().counted[number % COUNTERS]
                .refused
                .fetch_add(1, Relaxed);
        }
    }

    fn close(&mut self) {
        self.is_refused = 0;
        if !self.page.is_null() {
            // SAFETY: the place is this thread's, whose page it is.
            unsafe { memory::unmap_pages_of(self.page as u64) };
            self.page = ptr::null();
        }
    }

    /// Accounts for the counter's times since the last reading.
    #[cold]
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    fn tell(&mut self, number: usize, reading: &Reading) {
        let enabled = reading.enabled.wrapping_sub(self.enabled);
        let running = reading.running.wrapping_sub(self.running);
        (self.enabled, self.running) = (reading.enabled, reading.running);
        self.lock = reading.lock;
        if shared::is_mapped() {
            let counted = &shared::header().counted[number % COUNTERS];
            counted.enabled.fetch_add(enabled, Relaxed);
            counted.running.fetch_add(running, Relaxed);
        }
    }

    /// The value of a reading. `time` returns the time of the thread's dummy page. `None` if it is
    /// unknown how long the thread has run since the event was last counted.
    #[inline(always)]
    fn said(&self, reading: &Reading, time: impl Fn() -> Option<u64>) -> Option<Said> {
        let missing = reading.enabled.wrapping_sub(reading.running);
        if reading.is_counted {
            return Some(Said {
                number: reading.count,
                running: reading.since.map_or(0, |since| reading.running + since),
                missing,
            });
        }
        let enabled = time()?.wrapping_add(self.ahead);
        // The clocks of the two pages differ slightly.
        let since = enabled.wrapping_sub(reading.running) as i64;
        Some(Said {
            number: reading.count,
            running: reading.since.map_or(0, |_| reading.running),
            missing: (since.max(0) as u64).max(missing),
        })
    }
}

#[cfg(test)]
mod tests;
