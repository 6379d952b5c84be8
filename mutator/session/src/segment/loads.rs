//! Libraries that come while some are awaited: what the runtime and the command tell each other.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Segment;

impl Segment {
    /// Says until when, by the time-stamp counter, this command is sure to be looking; 0 where it no longer does.
    pub fn note_watched(&self, until: u64, by: u64) {
        let header = self.header();
        header.watched_by.store(by, Relaxed);
        header.watched_until.store(until, Release);
    }

    /// How often libraries have come or gone, where that is not how often somebody has looked.
    pub fn unseen_loads(&self) -> Option<u64> {
        let header = self.header();
        let loads = header.loads.load(Acquire);
        (loads != header.loads_seen.load(Acquire)).then_some(loads)
    }

    /// Has somebody look once more, as where libraries have come or gone.
    pub fn note_load(&self) {
        self.header().loads.fetch_add(1, AcqRel);
    }

    /// Says that so many have been looked at, and wakes who waits for that.
    pub fn note_loads_seen(&self, loads: u64) {
        let seen = &self.header().loads_seen;
        seen.fetch_max(loads, Release);
        // SAFETY: futex(2) reads nothing but the address, of a word of the map.
        unsafe { libc::syscall(libc::SYS_futex, seen.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}
