//! Threads that wait before they leave the program, until the command has acted on that.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use abi::segment::{DEPARTS_BY_CHECK, DEPARTS_BY_EXIT, departure_parts};

use super::Segment;

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its id in its own pid namespace.
    pub tid: u32,
    /// Why it waits.
    pub by: Departs,
    word: u64,
}

/// How a thread may leave the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departs {
    /// By executing another program.
    Exec,
    /// By the process's exit.
    Exit,
    /// Not at all: it looks for leaks as at the process's exit.
    Check,
}

impl Segment {
    /// The thread that waits, if one does.
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

    /// Lets it go on. Nothing happens if it has gone on already.
    pub fn let_depart(&self, departure: &Departure) {
        let place = &self.header().departing;
        let _ = place.compare_exchange(departure.word, 0, AcqRel, Relaxed);
        // SAFETY: futex(2) reads nothing but the address, of a word of the map.
        unsafe { libc::syscall(libc::SYS_futex, place.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}
