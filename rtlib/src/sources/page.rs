//! A page that the kernel writes to each time that the thread is switched in.
//!
//! It is that of a perf event which counts nothing (PERF_COUNT_SW_DUMMY, perf_event_open(2)). When the kernel puts a
//! thread's events in, it updates their pages (kernel/events/core.c, perf_swevent_add and perf_event_update_userpage). So
//! as long as the page's sequence number stays the same, the thread has not been switched out, and what changes only then
//! need not be asked for again. The event's descriptor is closed at once; the mapping keeps it.

use core::mem::offset_of;
use core::ptr;

use abi::counter::{Event, words};

use super::mmap_page::{self, MmapPage};
use crate::arch::clock;
use crate::os::{memory, sys};

/// A thread's page.
#[repr(C)]
pub struct Page {
    at: *const MmapPage,
    /// 1 where there is none to be had.
    is_refused: u32,
    _padding: u32,
}

/// Offset of where a thread's page is, null where there is none, and in that of its number.
pub const AT: usize = offset_of!(Page, at);
/// See [`AT`].
pub const LOCK: usize = mmap_page::LOCK;

/// In user mode alone, which needs no rights.
static DUMMY: Event = {
    const SOFTWARE: u32 = 1;
    const COUNT_DUMMY: u64 = 9;
    Event::new(words(SOFTWARE, [COUNT_DUMMY, 0, 0]))
};

impl Page {
    /// None, for a test.
    #[cfg(test)]
    pub fn none() -> Self {
        Self {
            at: ptr::null(),
            is_refused: 1,
            _padding: 0,
        }
    }

    /// The calling thread's, for a test.
    #[cfg(test)]
    pub fn own() -> Self {
        let mut page = Self {
            is_refused: 0,
            ..Self::none()
        };
        page.open();
        page
    }

    /// One that is mapped already.
    pub fn of(at: &'static MmapPage) -> Self {
        Self {
            at,
            is_refused: 0,
            _padding: 0,
        }
    }

    /// Maps the calling thread's; where that has been tried and refused, nothing.
    pub fn open(&mut self) {
        if !self.at.is_null() || self.is_refused != 0 {
            return;
        }
        let page = sys::own_event(&DUMMY).and_then(|event| memory::map_pages_of(&event, 1));
        match page {
            Some(page) => self.at = page as *const MmapPage,
            None => self.is_refused = 1,
        }
    }

    /// Unmaps it.
    pub fn close(&mut self) {
        self.is_refused = 0;
        if !self.at.is_null() {
            // SAFETY: the place is this thread's, whose page it is.
            unsafe { memory::unmap_pages_of(self.at as u64) };
            self.at = ptr::null();
        }
    }

    /// Does without it from now on: it has not told all.
    pub fn refuse(&mut self) {
        self.close();
        self.is_refused = 1;
    }

    /// Its sequence number; `None` where there is no page.
    #[inline(always)]
    pub fn lock(&self) -> Option<u32> {
        Some(self.mapped()?.lock())
    }

    /// ns that the thread has run with it, where that is known without a system call.
    #[inline(always)]
    pub fn time(&self) -> Option<u64> {
        self.mapped()?.time(clock::now)
    }

    #[inline(always)]
    fn mapped(&self) -> Option<&MmapPage> {
        // SAFETY: the page stays mapped as long as the address is here.
        unsafe { self.at.as_ref() }
    }
}

/// What a source said, which changes only when the thread is switched out.
#[repr(C)]
pub struct Kept {
    said: u64,
    /// The sequence number by then.
    lock: u32,
    /// 1 where there was one.
    is_known: u32,
}

impl Kept {
    /// Makes it that of another thread.
    pub fn forget(&mut self) {
        self.is_known = 0;
    }

    /// What it says, where the thread has not been switched out since.
    #[inline(always)]
    pub fn known(&self, page: &Page) -> Option<u64> {
        let is_same = self.is_known != 0 && page.lock() == Some(self.lock);
        is_same.then_some(self.said)
    }

    /// What it says, by `read` where the thread may have been switched out since.
    #[inline(always)]
    pub fn read(&mut self, page: &mut Page, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        page.open();
        if let Some(said) = self.known(page) {
            return Some(said);
        }
        let lock = page.lock();
        let said = read()?;
        self.said = said;
        // What was read first is what it belongs to: a switch in between has it read again.
        self.lock = lock.unwrap_or(0);
        self.is_known = lock.is_some().into();
        Some(said)
    }

    /// Its value at an exit, by `read` if the thread may have been switched out since the last reading. `lock`
    /// is the page's number soon after the exit. If the thread has been switched out after the exit, the value
    /// is less by `growth`, which it has grown by at most since then.
    #[inline(always)]
    pub fn read_at_exit(
        &mut self,
        page: &mut Page,
        lock: Option<u32>,
        read: impl FnOnce() -> Option<u64>,
        growth: impl FnOnce(&Page) -> u64,
    ) -> Option<u64> {
        let before = (self.is_known != 0).then_some(self.said);
        if let Some(said) = before.filter(|_| lock == Some(self.lock)) {
            return Some(said);
        }
        let said = self.read(page, read)?;
        if lock.is_some() && page.lock() == lock {
            return Some(said);
        }
        let at_exit = said.saturating_sub(growth(page));
        Some(before.map_or(at_exit, |before| at_exit.max(before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_number_changes_when_the_thread_is_switched_out() {
        crate::os::parameters::allow_system_calls();
        let mut page = Page::own();
        let before = page.lock().expect("root may have events of its own");
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_ne!(page.lock(), Some(before));
        page.close();
        assert_eq!(page.lock(), None);
    }

    #[test]
    fn what_is_kept_is_read_again_only_after_a_switch() {
        crate::os::parameters::allow_system_calls();
        let mut page = Page::own();
        let mut kept = Kept {
            said: 0,
            lock: 0,
            is_known: 0,
        };
        let mut read = 0;
        for round in 1..=20 {
            let said = kept.read(&mut page, || {
                read = round;
                Some(round)
            });
            assert_eq!(said, Some(read));
            if round % 5 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
                let said = kept.read(&mut page, || Some(100 + round));
                assert_eq!(said, Some(100 + round));
                kept.is_known = 0;
            }
        }
        page.close();
    }
}
