//! Stopping a process: ptrace(2), by PTRACE_SEIZE, so that nothing is stopped or signalled that
//! the program could see.
//!
//! [`Stopped`] holds threads in ptrace-stop. It is the only way to their registers, and dropping
//! or [`Stopped::resume`]-ing it lets every one of them go on exactly as it would have.

mod error;
mod priority;
mod remote;
mod sequence;
mod sys;
mod thread;
mod way_back;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::process::{Pid, Process, Tid};

use sys::Change;

pub use error::TraceeError;
pub use priority::Priority;
pub use remote::{CallCode, Remote};
pub use thread::StoppedThread;

/// How long threads may take to stop before it is given up: one in an uninterruptible sleep stops
/// only when that ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many rounds of new threads are followed: each stops what it finds, so the threads left to
/// make new ones soon run out.
const ROUNDS: usize = 200;

/// Threads of one process in ptrace-stop.
#[derive(Debug)]
pub struct Stopped {
    pid: Pid,
    threads: BTreeMap<Tid, StoppedThread>,
    since: Instant,
    _priority: Priority,
}

impl Stopped {
    /// Stops every thread of the process.
    pub fn all(process: &Process) -> Result<Self, TraceeError> {
        let mut stopped = Self::none(process.pid);
        // Threads that have ended: the leader stays listed. Others may have made one before that.
        let mut ended: Vec<Tid> = Vec::new();
        for _ in 0..ROUNDS {
            let tids = process.tids().ok_or(TraceeError::Gone(process.pid))?;
            let new: Vec<Tid> = tids
                .into_iter()
                .filter(|t| !stopped.threads.contains_key(t))
                .collect();
            // A listing can lack a thread while others end.
            let known = stopped.threads.len() + ended.len();
            if new == ended && thread_count(process).is_none_or(|count| count <= known) {
                break;
            }
            stopped.stop(&new)?;
            ended = new;
            ended.retain(|t| !stopped.threads.contains_key(t));
        }
        if stopped.threads.is_empty() {
            return Err(TraceeError::Gone(process.pid));
        }
        Ok(stopped)
    }

    /// Takes over a child that has stopped itself and is traced by this process already.
    pub fn adopt(pid: Pid) -> Result<Self, TraceeError> {
        let mut stopped = Self::none(pid);
        let tid = Tid(pid.0);
        sys::set_options(tid).map_err(|e| TraceeError::seize(pid, tid, e))?;
        stopped.threads.insert(tid, StoppedThread::at_stop(tid, 0)?);
        Ok(stopped)
    }

    fn none(pid: Pid) -> Self {
        Self {
            pid,
            threads: BTreeMap::new(),
            since: Instant::now(),
            _priority: Priority::raise(),
        }
    }

    /// Stops those of these threads that have not ended.
    fn stop(&mut self, tids: &[Tid]) -> Result<(), TraceeError> {
        let mut seized = Vec::new();
        for &tid in tids {
            match sys::seize(tid) {
                Ok(()) => seized.push(tid),
                // Ended since it was listed, or a zombie leader.
                Err(Errno::ESRCH) => {}
                Err(Errno::EPERM) if is_dead(self.pid, tid) => {}
                Err(errno) => return Err(TraceeError::seize(self.pid, tid, errno)),
            }
        }
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
        let deadline = Instant::now() + PATIENCE;
        for tid in interrupted {
            if let Some(thread) = wait_for_stop(self.pid, tid, deadline)? {
                self.threads.insert(tid, thread);
            }
        }
        Ok(())
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The threads in stop.
    pub fn threads(&mut self) -> impl Iterator<Item = &mut StoppedThread> {
        self.threads.values_mut()
    }

    /// Lets these threads run for `time` while all others stay stopped, even where a signal has
    /// stopped the process: they leave a short piece of code behind them.
    pub fn let_run(&mut self, tids: &[Tid], time: Duration) -> Result<(), TraceeError> {
        let mut running = Vec::new();
        for tid in tids {
            if let Some(thread) = self.threads.remove(tid)
                && thread.go_on()?
            {
                running.push(*tid);
            }
        }
        std::thread::sleep(time);
        // One that was stopped with its process has yet to take the stop of our interrupt: it was
        // stopped already when that came.
        let mut again = false;
        for &tid in &running {
            let change = sys::change(tid, false).map_err(|e| TraceeError::Wait(tid, e))?;
            if change == Change::Stopped {
                again = true;
                match sys::cont(tid, 0) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => return Err(TraceeError::Resume(tid, errno)),
                }
            }
        }
        if again {
            std::thread::sleep(time);
        }
        let mut interrupted = Vec::new();
        for tid in running {
            match sys::interrupt(tid) {
                Ok(()) => interrupted.push(tid),
                Err(Errno::ESRCH) => {}
                Err(errno) => return Err(TraceeError::Interrupt(self.pid, tid, errno)),
            }
        }
        let deadline = Instant::now() + PATIENCE;
        for tid in interrupted {
            if let Some(thread) = wait_for_stop(self.pid, tid, deadline)? {
                self.threads.insert(tid, thread);
            }
        }
        Ok(())
    }

    /// Lets all threads go on; how long they were stopped.
    pub fn resume(mut self) -> Result<Duration, TraceeError> {
        let mut first_error = None;
        for (_, thread) in std::mem::take(&mut self.threads) {
            if let Err(error) = thread.resume() {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or_else(|| Ok(self.since.elapsed()), Err)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for (_, thread) in std::mem::take(&mut self.threads) {
            // Nothing can be done for a thread that cannot be resumed; it is gone.
            let _ = thread.resume();
        }
    }
}

fn thread_count(process: &Process) -> Option<usize> {
    process.status("Threads")?.trim().parse().ok()
}

fn is_dead(pid: Pid, tid: Tid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
    stat.map_or(true, |s| {
        s.rsplit_once(") ")
            .is_none_or(|(_, r)| r.starts_with(['Z', 'X']))
    })
}

/// Waits until a thread that has been interrupted stops; `None` if it ends instead.
fn wait_for_stop(
    pid: Pid,
    tid: Tid,
    deadline: Instant,
) -> Result<Option<StoppedThread>, TraceeError> {
    let mut pause = Duration::from_micros(5);
    loop {
        match sys::change(tid, false).map_err(|e| TraceeError::Wait(tid, e))? {
            Change::None => {}
            Change::Stopped => {
                return StoppedThread::at_stop(tid, 0)
                    .map(Some)
                    .or_else(TraceeError::if_gone);
            }
            // Stopped by a signal on its way in before the interrupt: it is delivered on resuming,
            // and the interrupt's own stop would come after that.
            Change::Signal(signal) => {
                return StoppedThread::at_stop(tid, signal)
                    .map(Some)
                    .or_else(TraceeError::if_gone);
            }
            Change::Ended => return Ok(None),
            Change::Call | Change::Other(_) => {
                sys::cont(tid, 0).map_err(|e| TraceeError::Resume(tid, e))?
            }
        }
        if Instant::now() > deadline {
            let _ = sys::detach(tid, 0);
            return Err(TraceeError::Stuck(pid, tid));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_micros(200));
    }
}
