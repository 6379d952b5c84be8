//! Threads that wait before they leave the program until the command has acted on it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use abi::segment::{DEPARTS_BY_CHECK, DEPARTS_BY_EXIT, departure_parts};

use super::Segment;

/// A thread that waits for ipath before it leaves the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The thread's id in its own pid namespace.
    pub tid: u32,
    /// The reason for waiting.
    pub by: Departs,
    /// The word of the header that describes the departure.
    word: u64,
}

/// The ways to leave the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departs {
    /// By executing another program.
    Exec,
    /// By the exit of the process.
    Exit,
    /// The thread does not leave, but checks for leaks as at the exit of the process.
    Check,
}

impl Segment {
    /// The waiting thread. `None` if no thread waits.
    pub fn departing(&self) -> Option<Departure> {
        let word = self.header().departing.load(Acquire);
        let (why, tid) = departure_parts(word);
        let by = match why {
            DEPARTS_BY_EXIT => Departs::Exit,
            DEPARTS_BY_CHECK => Departs::Check,
            _ => Departs::Exec,
        };
        (word != 0).then_some(Departure { tid, by, word })
    }

    /// Lets the thread continue. Does nothing if it has continued already.
    pub fn let_depart(&self, departure: &Departure) {
        let place = &self.header().departing;
        let _ = place.compare_exchange(departure.word, 0, AcqRel, Relaxed);
        // SAFETY: futex(2) uses only the address, which is that of a word in the map.
        unsafe { libc::syscall(libc::SYS_futex, place.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}
