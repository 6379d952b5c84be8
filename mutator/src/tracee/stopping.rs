//! Stopping threads: PTRACE_SEIZE, PTRACE_INTERRUPT, and the wait for their stops.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::attaching::attaching;
use super::wait::{Waited, is_dead, wait_for_stop};
use super::{AT_ONCE, LONGEST, PATIENCE, Stopped, TraceeError, first_last, followed, runs, sys};
use crate::process::Tid;
use crate::progress::Step;

impl Stopped {
    /// Stops those of these threads that have not ended; which have not stopped within `at_once`.
    pub(super) fn stop(
        &mut self,
        tids: &[Tid],
        at_once: Duration,
        step: &Step,
    ) -> Result<Vec<Tid>, TraceeError> {
        let (seized, refused) = match tids.iter().all(|&tid| followed::is_one(tid)) {
            true => (tids.to_vec(), None),
            false => attaching(self.pid, || self.seize_all(tids)),
        };
        // Up to here they all run.
        if self.threads.is_empty() {
            self.since = Instant::now();
        }
        let mut interrupted = Vec::new();
        for tid in seized {
            match sys::interrupt(tid) {
                Ok(()) => interrupted.push(tid),
                Err(Errno::ESRCH) => {}
                Err(errno) => return Err(TraceeError::Interrupt(self.pid, tid, errno)),
            }
        }
        let slow = self.gather(interrupted, at_once, step)?;
        refused.map_or(Ok(slow), Err)
    }

    /// Waits until these threads, which have been interrupted, have stopped; which have not within
    /// `at_once`.
    ///
    /// It goes on for as long as one after another stops, or one is ready to run: those that wait for
    /// a processor come by one the sooner the more of the others stand still.
    fn gather(
        &mut self,
        mut waited_for: Vec<Tid>,
        at_once: Duration,
        step: &Step,
    ) -> Result<Vec<Tid>, TraceeError> {
        /// How many are looked at that have not stopped.
        const SOME: usize = 8;
        let all = self.threads.len() + waited_for.len();
        let latest = Instant::now() + PATIENCE;
        let mut deadline = Instant::now() + at_once;
        let mut last = Instant::now();
        loop {
            let mut slow = Vec::new();
            for tid in waited_for {
                match wait_for_stop(tid, deadline)? {
                    Waited::Stopped(thread) => {
                        self.threads.insert(tid, *thread);
                        last = Instant::now();
                        deadline = deadline.max(latest.min(last + AT_ONCE));
                        step.at(self.threads.len(), all);
                    }
                    Waited::Ended => {}
                    Waited::Running => slow.push(tid),
                }
            }
            let now = Instant::now();
            let helps = || {
                let is_ready = |tid: &Tid| runs(self.pid, *tid);
                now < latest && now < last + LONGEST && slow.iter().take(SOME).any(is_ready)
            };
            if slow.is_empty() || !helps() {
                return Ok(slow);
            }
            deadline = deadline.max(latest.min(now + AT_ONCE));
            waited_for = slow;
        }
    }

    /// Begins to trace those of these threads that have not ended; which are traced, and why one of them is not.
    fn seize_all(&self, tids: &[Tid]) -> (Vec<Tid>, Option<TraceeError>) {
        let mut seized = Vec::new();
        for tid in first_last(self.pid, tids.iter().copied()) {
            if followed::is_one(tid) {
                seized.push(tid);
                continue;
            }
            match self.seize(tid) {
                Ok(()) => seized.push(tid),
                // Ended since it was listed, or a zombie leader.
                Err(Errno::ESRCH) => {}
                Err(Errno::EPERM) if is_dead(self.pid, tid) => {}
                // One that was too slow the last time, or a new one of a process that is followed.
                Err(Errno::EPERM) if self.traces(tid) => {
                    if followed::process_of(Tid(self.pid.0)).is_some() {
                        let _ = followed::enter(tid);
                    }
                    seized.push(tid);
                }
                Err(errno) => return (seized, Some(self.refused(tid, errno))),
            }
        }
        (seized, None)
    }

    /// True if this very thread of ours traces it.
    fn traces(&self, tid: Tid) -> bool {
        let own = nix::unistd::gettid().as_raw();
        self.hold.space.process().tracer_of(tid) == Some(own)
    }

    /// Begins to trace a thread. Where it may not be traced and nobody traces it, somebody may just have
    /// let it go: then it is tried again.
    fn seize(&self, tid: Tid) -> Result<(), Errno> {
        const TRIES: usize = 8;
        let is_untraced = || self.hold.space.process().tracer_of(tid).is_none();
        let mut result = sys::seize(tid);
        for _ in 1..TRIES {
            match result {
                Err(Errno::EPERM) if is_untraced() => result = sys::seize(tid),
                _ => break,
            }
        }
        result
    }
}
