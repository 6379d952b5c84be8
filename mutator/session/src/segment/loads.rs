//! Libraries that are loaded while patterns wait for them: messages between the runtime and the
//! command.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Segment;

impl Segment {
    /// Sets the time, by the time-stamp counter, until which this command is certain to watch; 0 if
    /// it no longer watches. `by` is its process id.
    pub fn note_watched(&self, until: u64, by: u64) {
        let header = self.header();
        header.watched_by.store(by, Relaxed);
        header.watched_until.store(until, Release);
    }

    /// The number of times that libraries were loaded or unloaded; `None` if all of them have been
    /// looked at.
    pub fn unseen_loads(&self) -> Option<u64> {
        let header = self.header();
        let loads = header.loads.load(Acquire);
        (loads != header.loads_seen.load(Acquire)).then_some(loads)
    }

    /// Requests another look, as if libraries had been loaded or unloaded.
    pub fn note_load(&self) {
        self.header().loads.fetch_add(1, AcqRel);
    }

    /// Records the number of loads and unloads that have been looked at, and wakes the threads that
    /// wait for that.
    pub fn note_loads_seen(&self, loads: u64) {
        let seen = &self.header().loads_seen;
        seen.fetch_max(loads, Release);
        // SAFETY: futex(2) uses only the address, which is that of a word in the map.
        unsafe { libc::syscall(libc::SYS_futex, seen.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}
