//! A page that the kernel writes each time that the thread is switched in.
//!
//! It belongs to a perf event that counts nothing (PERF_COUNT_SW_DUMMY, perf_event_open(2)). When
//! the kernel switches in a thread's events, it updates their pages (kernel/events/core.c,
//! perf_swevent_add and perf_event_update_userpage). So while the page's sequence number is
//! unchanged, the thread has not been switched out, and values that change only then need not be
//! read again. The event's descriptor is closed at once; the mapping keeps the event alive.

use core::mem::offset_of;
use core::ptr;

use abi::counter::{Event, words};

use super::mmap_page::{self, MmapPage};
use crate::arch::clock;
use crate::os::{memory, sys};

/// A thread's page: the mapping of the kernel's page, if there is one.
#[repr(C)]
pub struct Page {
    at: *const MmapPage,
    /// 1 if the page is not available.
    is_refused: u32,
    _padding: u32,
}

/// Byte offset in [`Page`] of the address of the kernel's page (null if there is none).
pub const AT: usize = offset_of!(Page, at);
/// Byte offset of the sequence number in the kernel's page.
pub const LOCK: usize = mmap_page::LOCK;

/// The page's event. It counts in user mode only, which needs no privileges.
static DUMMY: Event = {
    const SOFTWARE: u32 = 1;
    const COUNT_DUMMY: u64 = 9;
    Event::new(words(SOFTWARE, [COUNT_DUMMY, 0, 0]))
};

impl Page {
    /// No page, for a test.
    #[cfg(test)]
    pub fn none() -> Self {
        Self {
            at: ptr::null(),
            is_refused: 1,
            _padding: 0,
        }
    }

    /// The page of the calling thread, for a test.
    #[cfg(test)]
    pub fn own() -> Self {
        let mut page = Self {
            is_refused: 0,
            ..Self::none()
        };
        page.open();
        page
    }

    /// A page that is mapped already.
    pub fn of(at: &'static MmapPage) -> Self {
        Self {
            at,
            is_refused: 0,
            _padding: 0,
        }
    }

    /// Maps the page of the calling thread, unless that was refused before.
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

    /// Unmaps the page, if there is one. It can be opened again, even if that was refused before.
    pub fn close(&mut self) {
        self.is_refused = 0;
        if !self.at.is_null() {
            // SAFETY: the place is this thread's, whose page it is.
            unsafe { memory::unmap_pages_of(self.at as u64) };
            self.at = ptr::null();
        }
    }

    /// Stops using the page, because it has missed a switch.
    pub fn refuse(&mut self) {
        self.close();
        self.is_refused = 1;
    }

    /// The sequence number; `None` if there is no page.
    #[inline(always)]
    pub fn lock(&self) -> Option<u32> {
        Some(self.mapped()?.lock())
    }

    /// Run time of the thread since the page was opened, in ns. `None` if it is not known without a
    /// system call.
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

/// A value of a source that changes only when the thread is switched out.
#[repr(C)]
pub struct Kept {
    /// The value of the last reading, in the source's unit.
    said: u64,
    /// The page's sequence number at the time of the last reading.
    lock: u32,
    /// 1 if `said` is a value of the current thread and `lock` was read with it; otherwise 0.
    is_known: u32,
}

impl Kept {
    /// Forgets the value, for another thread.
    pub fn forget(&mut self) {
        self.is_known = 0;
    }

    /// The value of the last reading, in the source's unit. `None` if nothing has been read, there
    /// is no page, or the thread has been switched out since.
    #[inline(always)]
    pub fn known(&self, page: &Page) -> Option<u64> {
        let is_same = self.is_known != 0 && page.lock() == Some(self.lock);
        is_same.then_some(self.said)
    }

    /// The value, in the source's unit. Opens the page. Calls `read` if the thread may have been
    /// switched out since the last reading. `None` if `read` returns `None`.
    #[inline(always)]
    pub fn read(&mut self, page: &mut Page, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        page.open();
        if let Some(said) = self.known(page) {
            return Some(said);
        }
        let lock = page.lock();
        let said = read()?;
        self.said = said;
        // The number was read before the value: after a switch in between, the value is read again.
        self.lock = lock.unwrap_or(0);
        self.is_known = lock.is_some().into();
        Some(said)
    }

    /// The value a moment ago, read by `read` if the thread may have been switched out since the
    /// last reading. `lock` is the page's number at that moment; `None` if there was no page. If
    /// the thread may have been switched out since then, `growth` is subtracted: an upper bound of
    /// the growth meanwhile. The result is never below the previous reading. `None` if `read`
    /// returns `None`.
    #[inline(always)]
    pub fn read_of(
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
        let then = said.saturating_sub(growth(page));
        Some(before.map_or(then, |before| then.max(before)))
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
