//! Threads that wait before they leave the program: for a tracer before execve(2), or for their tracer to go before the
//! process looks for leaks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::Session;
use super::pending::LOOKING;
use crate::process::{Process, Tid};
use crate::segment::Departs;

/// How long a command that does not act on it leaves it to others.
const A_WHILE: Duration = Duration::from_millis(50);

/// What becomes of a process that is about to leave its program. The thread waits meanwhile, no longer than a minute.
pub trait Departures: Send + Sync {
    /// A thread is about to execute a file. It does not before `go_on` is called.
    fn executes(&self, process: &Process, tid: Tid, go_on: &(dyn Fn() + Sync));

    /// The process is about to exit, or to look for leaks as at its exit and to go on then.
    fn exits(&self, process: &Process, goes_on: bool);
}

impl Session {
    /// Acts on the thread that waits, if one does.
    pub(super) fn look_at_departures(&self, departures: Option<&dyn Departures>) {
        let Some(departure) = self.segment.departing() else {
            return;
        };
        self.note_watched(LOOKING);
        // Once: what stands there afterwards is the next departure, which may be the same thread's.
        let is_told = AtomicBool::new(false);
        let go_on = || {
            if !is_told.swap(true, Ordering::Relaxed) {
                self.segment.let_depart(&departure);
            }
        };
        match departures {
            // Another command that watches may act on it, and is given the time to.
            None => sleep(A_WHILE),
            Some(departures) => match departure.by {
                Departs::Exit => departures.exits(&self.process, false),
                Departs::Check => departures.exits(&self.process, true),
                Departs::Exec => {
                    if let Some(tid) = self.process.tid_of_inner(departure.tid) {
                        departures.executes(&self.process, tid, &go_on);
                    }
                }
            },
        }
        go_on();
    }
}
