//! Threads that wait before they leave the program: before execve(2) until they are traced, or
//! before a leak check until their tracer has detached.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::Session;
use super::pending::LOOKING;
use crate::segment::Departs;
use ipath_target::process::{Process, Tid};

/// The time that a command without an action leaves to other commands.
const A_WHILE: Duration = Duration::from_millis(50);

/// Handles a process that is about to leave its program. The thread waits meanwhile, at most a
/// minute.
pub trait Departures: Send + Sync {
    /// A thread is about to execute a file. It waits until `go_on` is called.
    fn executes(&self, process: &Process, tid: Tid, go_on: &(dyn Fn() + Sync));

    /// The process is about to exit. If `goes_on`, it checks for leaks as at its exit and then
    /// continues.
    fn exits(&self, process: &Process, goes_on: bool);
}

impl Session {
    /// Handles the waiting thread, if there is one.
    pub(super) fn look_at_departures(&self, departures: Option<&dyn Departures>) {
        let Some(departure) = self.segment.departing() else {
            return;
        };
        self.note_watched(LOOKING);
        // Only once: the word may already hold the next departure, possibly of the same thread.
        let is_told = AtomicBool::new(false);
        let go_on = || {
            if !is_told.swap(true, Ordering::Relaxed) {
                self.segment.let_depart(&departure);
            }
        };
        match departures {
            // Another watching command may handle it, and gets the time to do so.
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
