//! Follows processes: everything that they start is measured as well, from its first instruction
//! on.
//!
//! The kernel reports each fork(2), vfork(2), clone(2) and execve(2) (ptrace(2), PTRACE_O_TRACEFORK
//! and similar options), so no new process or program is missed, whatever created it. A child of
//! fork gets a copy of its parent's session (`session/child.rs`). A program that has been executed
//! is analyzed, and gets the requested probes once its loader reports that its libraries are there.
//! A child that shares its parent's memory, as a child of posix_spawn(3) does at first, belongs to
//! no session until it executes a program.

mod children;
mod family;
mod gathering;
mod letting;
mod remarks;
mod shared;

use std::io;
use std::sync::{Arc, Mutex};

use crate::session::Departures;
use ipath_profile::Profile;
use ipath_profile::merge::{Merger, PathsOf};
use ipath_target::process::{Pid, Process};
use ipath_target::tracee::Tracer;

use family::Family;
use gathering::Gathering;
use letting::Letting;
use shared::{Shared, lock};

pub use shared::{Newcomer, Seen, Wanted};

/// The results of following, which stay available after the [`Follower`] is dropped.
#[derive(Clone)]
pub struct Progress(Arc<Mutex<Shared>>);

impl Progress {
    /// The counts so far.
    pub fn seen(&self) -> Seen {
        lock(&self.0).seen
    }

    /// The exit status of the program that was started, as wait(2) returns it. `None` until the
    /// program has been collected.
    pub fn status(&self) -> Option<i32> {
        lock(&self.0).status
    }

    /// Counts a session that was created elsewhere.
    pub fn note_measured(&self) {
        lock(&self.0).seen.measured += 1;
    }
}

/// Follows processes for as long as it lives.
pub struct Follower {
    tracer: Tracer<Family>,
    shared: Arc<Mutex<Shared>>,
    /// Dropped after the tracer, which feeds it.
    gathering: Gathering,
}

impl Follower {
    /// Begins without any process. `paths_of` selects how the sum of ended sessions keeps paths.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub fn begin(wanted: Wanted, paths_of: PathsOf) -> io::Result<Self> {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let gathering = Gathering::begin(paths_of)?;
        let family = Family::new(wanted, Arc::clone(&shared), gathering.over());
        Ok(Self {
            tracer: Tracer::begin(family)?,
            shared,
            gathering,
        })
    }

    /// Follows a running process and everything that it starts from now on, but not what it has
    /// started before. A process without a `parent` is the first one. Children of
    /// followed processes are held until [`Self::begin_held`]. From now on the command cannot be
    /// suspended.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn follow(
        &self,
        process: &Process,
        parent: Option<Pid>,
    ) -> Result<(), ipath_target::tracee::TraceeError> {
        // The process and its children are not in this command's job, and run only while it does.
        // So the command must not be suspended.
        ipath_target::suspension::never();
        let process = process.clone();
        let followed = self
            .tracer
            .ask(move |family| family.follow(&process, parent));
        followed.unwrap_or(Ok(()))
    }

    /// True if a process is followed. False after the tracing thread has ended.
    pub fn is_following(&self, pid: Pid) -> bool {
        self.tracer
            .ask(move |family| family.known(pid))
            .unwrap_or(false)
    }

    /// Measures the children that were held while the first session was created, and resumes them.
    pub fn begin_held(&self) {
        let _ = self.tracer.ask(Family::begin_held);
    }

    /// Registers a process that the tracing thread has started for this command, and whose only
    /// thread is held.
    pub fn adopt(&self, process: &Process) {
        let process = process.clone();
        let _ = self.tracer.ask(move |family| family.adopt(&process));
    }

    /// The sessions created since the last call, except those of processes that have ended, by
    /// process id.
    pub fn newcomers(&self) -> Vec<Newcomer> {
        let newcomers = std::mem::take(&mut lock(&self.shared).newcomers);
        newcomers.into_values().collect()
    }

    /// The processes whose programs have ended since the last call, with the time of the end in
    /// ticks of the time-stamp counter. Leaves out processes whose sessions were not handed out,
    /// but includes those without a session.
    pub fn over(&self) -> Vec<(Pid, u64)> {
        std::mem::take(&mut lock(&self.shared).over)
    }

    /// Adds the profile of a session that was handed out and has ended.
    pub fn gather(&self, profile: &Profile) {
        self.gathering.add(profile);
    }

    /// The sum of the sessions that have ended. With `whole`, waits until it includes every session
    /// that has ended so far.
    pub fn gathered(&self, whole: bool) -> Merger {
        if whole {
            self.gathering.whole()
        } else {
            self.gathering.sum()
        }
    }

    /// The number of ended sessions with counts that are not in the sum.
    pub fn lost(&self) -> u64 {
        self.gathering.lost()
    }

    /// The remarks since the last call.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = lock(&self.shared).remarks.take();
        remarks.extend(self.gathering.failed());
        remarks
    }

    /// A line for each remark that concerned more processes since the last call.
    pub fn repeated(&self) -> Vec<String> {
        lock(&self.shared).remarks.repeated()
    }

    /// The counts so far.
    pub fn seen(&self) -> Seen {
        if !lock(&self.shared).let_go.is_empty() {
            // The tracer gets no event when these processes end.
            let _ = self.tracer.ask(Family::remove_ended);
        }
        lock(&self.shared).seen
    }

    /// The handler that detaches from followed processes before their leak check.
    pub fn departures(&self) -> Arc<dyn Departures> {
        Letting::of(&self.shared)
    }

    /// The results, which stay available after this is dropped.
    pub fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.shared))
    }

    /// Creates no more sessions in programs that are executed from now on. Children still get their
    /// parents' sessions.
    pub fn close(&self) {
        let _ = self.tracer.ask(|family| family.close());
    }

    /// Detaches from all processes. First waits, for a few seconds at most, until their libraries
    /// are loaded.
    pub fn let_go(&self) {
        let _ = self.tracer.ask(Family::let_go);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // However it is dropped: code left in a loader would stay, and a breakpoint there would end
        // the program.
        self.let_go();
    }
}
