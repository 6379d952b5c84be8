//! Stopping threads: PTRACE_SEIZE, PTRACE_INTERRUPT, and the wait for their stops.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::attaching::attaching;
use super::wait::{Waited, is_dead, wait_for_stop};
use super::{AT_ONCE, LONGEST, PATIENCE, Stopped, TraceeError, first_last, followed, runs, sys};
use crate::process::Tid;
use crate::progress::Step;

impl Stopped {
    /// Stops these threads. Ignores threads that have ended. Returns the threads that have not
    /// stopped within `at_once`.
    pub(super) fn stop(
        &mut self,
        tids: &[Tid],
        at_once: Duration,
        step: &Step,
    ) -> Result<Vec<Tid>, TraceeError> {
        let (seized, refused) = if tids.iter().all(|&tid| followed::is_one(tid)) {
            (tids.to_vec(), None)
        } else {
            attaching(self.pid, || self.seize_all(tids))
        };
        // All threads have run up to here.
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

    /// Waits until these interrupted threads have stopped. Returns the threads that have not
    /// stopped within `at_once`.
    ///
    /// The wait continues while further threads stop or are ready to run. A thread that waits for a
    /// processor gets one sooner if more of the other threads are stopped.
    pub(super) fn gather(
        &mut self,
        mut waited_for: Vec<Tid>,
        at_once: Duration,
        step: &Step,
    ) -> Result<Vec<Tid>, TraceeError> {
        /// The number of slow threads whose state is checked.
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

    /// Begins to trace these threads. Ignores threads that have ended. Returns the traced threads,
    /// and the error of the first thread that cannot be traced.
    fn seize_all(&self, tids: &[Tid]) -> (Vec<Tid>, Option<TraceeError>) {
        let mut seized = Vec::new();
        for tid in first_last(self.pid, tids.iter().copied()) {
            if followed::is_one(tid) {
                seized.push(tid);
                continue;
            }
            match self.seize(tid) {
                Ok(()) => seized.push(tid),
                // The thread has ended since it was listed, or is a zombie leader.
                Err(Errno::ESRCH) => {}
                Err(Errno::EPERM) if is_dead(self.pid, tid) => {}
                // The thread was too slow in the last stop, or is a new one of a followed process.
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

    /// True if the calling thread traces `tid`.
    fn traces(&self, tid: Tid) -> bool {
        let own = nix::unistd::gettid().as_raw();
        self.hold.space.process().tracer_of(tid) == Some(own)
    }

    /// Begins to trace a thread. Tries again after EPERM if the thread has no tracer: its previous
    /// tracer may have just detached.
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
