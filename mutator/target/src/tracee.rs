//! Stopping a process with ptrace(2). It uses PTRACE_SEIZE, so the program observes no stop and no
//! signal.
//!
//! [`Stopped`] holds threads in ptrace-stop and is the only access to their registers. Dropping it
//! or calling [`Stopped::resume`] resumes every thread exactly where it would have continued.

mod attaching;
mod calls;
mod error;
mod executing;
pub mod followed;
mod remote;
mod sequence;
mod serve;
mod stopping;
mod sys;
mod thread;
mod tracer;
mod turns;
mod wait;
mod way_back;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use attaching::attaching;

use crate::process::memory::WholeProcess;
use crate::process::{
    Memory, Pid, Presence, Process, ProcessError, Space, Text, Tid, is_passing, read_text,
    stat_field, take_name, thread_state,
};

use crate::priority::Priority;
use crate::progress::Step;
use crate::suspension::Work;

use wait::{Waited, is_dead, wait_for_stop};

pub use error::TraceeError;
pub use executing::{Executed, leave, see_exec};
pub use remote::{CallCode, Remote};
pub use serve::{go_on, let_go_on, pause};
pub use sys::{Change, begun, change, collect_stop, cont, registers, set_registers, to_call};
pub use thread::{StoppedThread, TRAP_BIT, block, mend};
pub use tracer::{Follow, Tracer};
pub use wait::{leave_exec, next, run_to_exec, seize_before_exec, step};

/// The longest wait for threads to stop. A thread in uninterruptible sleep stops only when the
/// sleep ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// The scheduler's time slice. A thread that is ready to run may wait for a slice of each other
/// thread.
const SLICE: Duration = Duration::from_millis(3);

/// The longest wait for `threads` threads to stop.
fn patience(threads: usize) -> Duration {
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    PATIENCE.saturating_add(SLICE.saturating_mul(threads))
}

/// The initial time for which stopped threads wait for threads that have not stopped.
const AT_ONCE: Duration = Duration::from_millis(20);
/// The longest time for which stopped threads wait for threads that have not stopped.
const LONGEST: Duration = Duration::from_secs(1);

/// The time to wait for one thread at a time while others run.
const A_WHILE: Duration = Duration::from_millis(5);
/// The least number of waits of [`A_WHILE`]. The count matters while a virtual machine is paused:
/// everything in it stands still except the clock.
const TIMES: usize = 200;

/// The time to let all threads run if each was about to handle a signal.
const A_MOMENT: Duration = Duration::from_millis(1);

/// The most rounds of listing new threads. Each round stops all it finds, so soon few threads
/// remain to create new ones.
const ROUNDS: usize = 200;

/// Runs `change` on a temporary thread, or on this one if no thread can be created.
///
/// The kernel's tracers are threads. When the temporary thread ends, the kernel releases everything
/// that is still traced, such as threads that did not stop in time.
///
/// While processes are followed, `change` runs on the tracer thread instead, because a thread has
/// only one tracer.
pub fn tracing<R: Send>(change: impl FnOnce() -> R + Send) -> R {
    let _work = Work::begin();
    let change = match tracer::run(change) {
        Ok(result) => return result,
        Err(change) => change,
    };
    let change = Mutex::new(Some(change));
    let once = || {
        let taken = change.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.map(|change| change())
    };
    let done = std::thread::scope(|scope| {
        // The name marks it as a brief tracer for other commands. A new thread inherits its
        // creator's name.
        let named = || {
            take_name();
            once()
        };
        let spawned = std::thread::Builder::new().spawn_scoped(scope, named);
        match spawned.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => None,
        }
    });
    match done.or_else(once) {
        Some(result) => result,
        None => unreachable!("one of the two has done it"),
    }
}

/// Stops one thread while `look` runs. `None` if the thread has ended or does not stop within the
/// time `within`. Must be called in [`tracing`], whose end releases a thread that has not stopped.
///
/// # Errors
/// The thread cannot be traced or interrupted.
pub fn glance<R>(
    pid: Pid,
    tid: Tid,
    within: Duration,
    look: impl FnOnce(&StoppedThread) -> R,
) -> Result<Option<R>, TraceeError> {
    let _priority = Priority::raise();
    match sys::seize(tid) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(None),
        Err(Errno::EPERM) if is_dead(pid, tid) => return Ok(None),
        Err(errno) => return Err(TraceeError::seize(pid, tid, errno)),
    }
    match sys::interrupt(tid) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(None),
        Err(errno) => return Err(TraceeError::Interrupt(pid, tid, errno)),
    }
    match wait_for_stop(tid, Instant::now() + within)? {
        Waited::Stopped(thread) => {
            let seen = look(&thread);
            thread.resume()?;
            Ok(Some(seen))
        }
        Waited::Ended | Waited::Running => Ok(None),
    }
}

/// Starts permanent tracing of each thread of a process by the tracer thread, without stopping any.
///
/// # Errors
/// The process has ended, its threads are unknown, or one of them cannot be traced.
pub fn trace_all(process: &Process) -> Result<(), TraceeError> {
    let pid = process.pid;
    let gone = |e| match process.life() {
        Presence::Ended => TraceeError::Gone(pid),
        _ => TraceeError::Unknown(pid, ipath_base::error::io_text(&e)),
    };
    for _ in 0..ROUNDS {
        let tids = process.list_tids().map_err(gone)?;
        let is_new = |tid: &Tid| !followed::is_one(*tid) && !is_worker(pid, *tid);
        let new: Vec<Tid> = first_last(pid, tids.into_iter().filter(is_new));
        let mut are_all = true;
        for tid in new {
            match attaching(pid, || sys::seize(tid)) {
                // Threads that it starts from now on are traced from their start.
                Ok(()) => drop(followed::enter(tid)),
                Err(Errno::ESRCH) => {}
                Err(Errno::EPERM) if is_dead(pid, tid) => continue,
                // A traced thread started it, and it has yet to stop for the first time.
                Err(Errno::EPERM) if followed::is_traced_here(tid) => drop(followed::enter(tid)),
                Err(errno) => {
                    followed::let_go(pid);
                    return Err(refusal(process, tid, errno));
                }
            }
            are_all = false;
        }
        if are_all {
            return Ok(());
        }
    }
    let why = "it creates threads faster than they can be traced";
    Err(TraceeError::Unknown(pid, why.to_owned()))
}

/// Moves the first thread of a process to the end. Once it is traced, the kernel keeps a signal
/// that the process ignores for the tracer (`sig_ignored`, kernel/signal.c). That signal would
/// interrupt a call of a thread that is not traced yet.
fn first_last(pid: Pid, tids: impl Iterator<Item = Tid>) -> Vec<Tid> {
    let (mut first, mut tids): (Vec<Tid>, Vec<Tid>) = tids.partition(|tid| tid.0 == pid.0);
    tids.append(&mut first);
    tids
}

/// The reason why a thread cannot be traced.
fn refusal(process: &Process, tid: Tid, errno: Errno) -> TraceeError {
    match process.tracer() {
        Some((_, by)) if errno == Errno::EPERM && is_passing(by) => TraceeError::Busy(process.pid),
        Some((tid, by)) if errno == Errno::EPERM => {
            TraceeError::Process(ProcessError::traced(process.pid, tid, by))
        }
        _ => TraceeError::seize(process.pid, tid, errno),
    }
}

/// All threads of one process, in ptrace-stop.
#[derive(Debug)]
pub struct Stopped {
    pid: Pid,
    hold: Hold,
    threads: BTreeMap<Tid, StoppedThread>,
    /// The time at which the first thread was stopped.
    since: Instant,
    _priority: Priority,
}

/// The parts of a [`Stopped`] that a [`Text`] is made from.
#[derive(Debug)]
struct Hold {
    space: Arc<Space>,
    /// A stopped thread. `None` until [`Stopped::parts`] chooses one.
    thread: Option<Tid>,
}

impl WholeProcess for Hold {
    fn any_thread(&self) -> Option<Tid> {
        self.thread
    }

    fn memory(&self) -> &Memory {
        self.space.memory()
    }
}

impl Stopped {
    /// Stops every thread of the process. Waits for a moment at which at least one of them can make
    /// system calls, and gives up waiting after a while.
    ///
    /// # Errors
    /// A thread cannot be stopped, the process has ended, or it is in another address space.
    pub fn all(space: &Arc<Space>) -> Result<Self, TraceeError> {
        let process = space.process();
        let deadline = Instant::now() + patience(thread_count(process).unwrap_or(0));
        let mut at_once = AT_ONCE;
        let mut stopped = Self::none(space);
        let step = Step::begin(format!("stopping the threads of {}", process.pid));
        let mut kept = BTreeSet::new();
        loop {
            let slow = match stopped.try_all(process, at_once, &step) {
                Ok(slow) => slow,
                // Each command may hold some of the threads. Both release theirs, and one of them
                // succeeds on a retry.
                Err(TraceeError::Busy(_)) if Instant::now() < deadline => {
                    stopped.release_all_but(&BTreeSet::new())?;
                    kept.clear();
                    pause(A_MOMENT * (1 + crate::random::number() % 8));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if slow.is_empty() {
                let is_usable = stopped.threads.values().any(StoppedThread::is_free);
                let is_gone = || stopped.threads.is_empty() && process.has_ended();
                if is_usable || Instant::now() > deadline || is_gone() {
                    break;
                }
            }
            // The other threads must not wait for the slow ones. They run until the slow ones have
            // stopped.
            stopped.release_all_but(&kept)?;
            if slow.is_empty() {
                serve::pause_but(A_MOMENT, |tid| kept.contains(&tid));
            }
            stopped.wait_for(&slow, deadline)?;
            kept.extend(slow);
            at_once = (2 * at_once).min(LONGEST);
        }
        if stopped.threads.is_empty() {
            return Err(match process.life() {
                Presence::Ended => TraceeError::Gone(process.pid),
                _ => {
                    let why = "its threads end faster than they can be stopped";
                    TraceeError::Unknown(process.pid, why.to_owned())
                }
            });
        }
        // From here on no thread can call exec.
        match space.is_current() {
            Presence::Here => Ok(stopped),
            Presence::Ended => Err(TraceeError::Gone(process.pid)),
            Presence::OtherProgram => Err(TraceeError::OtherProgram(process.pid)),
            Presence::Unknown(cause) => Err(TraceeError::Unknown(process.pid, cause)),
        }
    }

    /// Stops every running thread. Returns the threads that did not stop within `at_once`.
    fn try_all(
        &mut self,
        process: &Process,
        at_once: Duration,
        step: &Step,
    ) -> Result<Vec<Tid>, TraceeError> {
        // Threads that have ended: an ended leader stays listed. One of them may have created
        // another thread before its end.
        let mut ended: Vec<Tid> = Vec::new();
        for _ in 0..ROUNDS {
            let tids = process.list_tids().map_err(|e| match process.life() {
                Presence::Ended => TraceeError::Gone(process.pid),
                _ => TraceeError::Unknown(process.pid, ipath_base::error::io_text(&e)),
            })?;
            let new: Vec<Tid> = tids
                .into_iter()
                .filter(|t| !self.threads.contains_key(t))
                .collect();
            let (workers, new): (Vec<Tid>, Vec<Tid>) = new
                .into_iter()
                .partition(|&tid| is_worker(process.pid, tid));
            // A listing can miss a thread while others end.
            let known = self.threads.len() + ended.len() + workers.len();
            if new == ended && thread_count(process).is_none_or(|count| count <= known) {
                break;
            }
            let slow = self.stop(&new, at_once, step)?;
            if !slow.is_empty() {
                return Ok(slow);
            }
            ended = new;
            ended.retain(|t| !self.threads.contains_key(t));
        }
        Ok(Vec::new())
    }

    /// Resumes all threads except `kept`.
    fn release_all_but(&mut self, kept: &BTreeSet<Tid>) -> Result<(), TraceeError> {
        for (tid, thread) in std::mem::take(&mut self.threads) {
            if kept.contains(&tid) {
                drop(self.threads.insert(tid, thread))
            } else {
                thread.resume()?
            }
        }
        Ok(())
    }

    /// Waits until the interrupted threads `tids` stop or end.
    ///
    /// # Errors
    /// [`TraceeError::Stuck`] if one has not by `deadline`.
    fn wait_for(&mut self, tids: &[Tid], deadline: Instant) -> Result<(), TraceeError> {
        // Counted over all threads. Separate counts would multiply the limit by thousands of
        // threads.
        let mut times = 0;
        for &tid in tids {
            match self.wait_while_others_go_on(tid, tids, (deadline, &mut times))? {
                Waited::Stopped(thread) => drop(self.threads.insert(tid, *thread)),
                Waited::Ended => {}
                Waited::Running => {
                    return Err(TraceeError::Stuck(self.pid, tid, runs(self.pid, tid)));
                }
            }
        }
        Ok(())
    }

    /// Waits for one of these threads. Meanwhile followed threads run, except those in `tids` and
    /// those in stop.
    fn wait_while_others_go_on(
        &self,
        tid: Tid,
        tids: &[Tid],
        (deadline, times): (Instant, &mut usize),
    ) -> Result<Waited, TraceeError> {
        let is_ours = |tid| tids.contains(&tid) || self.threads.contains_key(&tid);
        loop {
            *times += 1;
            match wait_for_stop(tid, Instant::now() + A_WHILE)? {
                Waited::Running if Instant::now() <= deadline || *times < TIMES => {
                    serve::pause_but(Duration::ZERO, is_ours);
                }
                waited => return Ok(waited),
            }
        }
    }

    /// Takes over a child that has stopped itself and that this process already traces.
    ///
    /// # Errors
    /// The child has ended, or its state cannot be read.
    pub fn adopt(space: &Arc<Space>) -> Result<Self, TraceeError> {
        Self::adopt_at(space, 0)
    }

    /// Like [`Self::adopt`], for a thread stopped before the delivery of `signal`, or 0 for none.
    ///
    /// # Errors
    /// See [`Self::adopt`].
    pub fn adopt_at(space: &Arc<Space>, signal: i32) -> Result<Self, TraceeError> {
        let pid = space.process().pid;
        let mut stopped = Self::none(space);
        let tid = Tid(pid.0);
        sys::set_options(tid).map_err(|e| TraceeError::seize(pid, tid, e))?;
        stopped
            .threads
            .insert(tid, StoppedThread::at_stop(tid, signal, false)?);
        Ok(stopped)
    }

    /// A stop without threads yet.
    fn none(space: &Arc<Space>) -> Self {
        Self {
            pid: space.process().pid,
            hold: Hold {
                space: Arc::clone(space),
                thread: None,
            },
            threads: BTreeMap::new(),
            since: Instant::now(),
            _priority: Priority::raise(),
        }
    }

    /// The reason why a thread cannot be traced.
    fn refused(&self, tid: Tid, errno: Errno) -> TraceeError {
        refusal(self.hold.space.process(), tid, errno)
    }

    /// The id of the stopped process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The threads in stop, ordered by id.
    pub fn threads(&mut self) -> impl Iterator<Item = &mut StoppedThread> {
        self.threads.values_mut()
    }

    /// The threads' address space.
    pub fn space(&self) -> &Arc<Space> {
        &self.hold.space
    }

    /// The right to write into the process.
    pub fn text(&mut self) -> Text<'_> {
        self.parts().1
    }

    /// The threads, and the right to write into the process.
    pub fn parts(&mut self) -> (impl Iterator<Item = &mut StoppedThread>, Text<'_>) {
        self.hold.thread = self.threads.keys().next().copied();
        (self.threads.values_mut(), Text::of(&self.hold))
    }

    /// Restores threads that a killed command had redirected to system calls. Afterwards no call
    /// runs whose command is gone.
    ///
    /// # Errors
    /// A thread cannot be resumed or restored.
    pub fn lead_back(&mut self) -> Result<(), TraceeError> {
        let (threads, text) = self.parts();
        for thread in threads.filter(|t| t.is_usable()) {
            way_back::lead_back(text.memory(), thread)
                .or_else(|e| e.if_gone().map(|_: Option<()>| true))?;
        }
        Ok(())
    }

    /// Leaves the threads stopped and traced, for a caller that has adopted them and resumes them
    /// itself.
    pub fn leave(mut self) {
        for (_, thread) in std::mem::take(&mut self.threads) {
            thread.leave();
        }
    }

    /// Resumes all threads. Returns for how long they were stopped. Ended threads are no error.
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

/// The number of threads of a process, by the kernel's count. `None` if it cannot be read.
fn thread_count(process: &Process) -> Option<usize> {
    process.status("Threads")?.trim().parse().ok()
}

/// True if the thread is a kernel worker of the process (io_uring(7), PF_IO_WORKER in
/// include/linux/sched.h). Workers never run the program's code, and stopping one would make its
/// operation fail.
fn is_worker(pid: Pid, tid: Tid) -> bool {
    const PF_IO_WORKER: u64 = 0x10;
    const FLAGS: usize = 9;
    let stat = read_text(format!("/proc/{pid}/task/{tid}/stat"));
    let flags = stat.ok().and_then(|stat| stat_field(&stat, FLAGS));
    flags.is_some_and(|flags| flags & PF_IO_WORKER != 0)
}

/// True if the thread is runnable. It then stops as soon as it gets a processor.
fn runs(pid: Pid, tid: Tid) -> bool {
    thread_state(pid, tid) == Some('R')
}
