//! Following a process: what it starts is measured as well, from its first instruction on.
//!
//! The kernel tells of each fork(2), vfork(2), clone(2) and execve(2) (ptrace(2), PTRACE_O_TRACEFORK and its like), so nothing that
//! begins is missed, whatever made it. A child of fork has its parent's session once more (`session/child.rs`). A program that has
//! been executed is analysed, and gets what was asked for once its loader reports that its libraries are there. A child that
//! shares its parent's memory, as one of posix_spawn(3) does at first, is nobody's until it becomes another program.

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

/// What comes of following.
#[derive(Clone)]
pub struct Progress(Arc<Mutex<Shared>>);

impl Progress {
    /// So far.
    pub fn seen(&self) -> Seen {
        lock(&self.0).seen
    }

    /// How the program has ended that was started, if it has been collected: wait(2).
    pub fn status(&self) -> Option<i32> {
        lock(&self.0).status
    }

    /// Counts a session that was made elsewhere.
    pub fn note_measured(&self) {
        lock(&self.0).seen.measured += 1;
    }
}

/// Follows processes as long as it lives.
pub struct Follower {
    tracer: Tracer<Family>,
    shared: Arc<Mutex<Shared>>,
    /// Ends after what feeds it.
    gathering: Gathering,
}

impl Follower {
    /// Begins, with no process yet. The sum of what is over has its paths as this says.
    ///
    /// # Errors
    /// No thread can be made.
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

    /// Follows a process that runs, and all that it starts from now on; what it has started before is not followed.
    /// A process without a `parent` is the first one.
    ///
    /// # Errors
    /// It cannot be traced.
    pub fn follow(
        &self,
        process: &Process,
        parent: Option<Pid>,
    ) -> Result<(), ipath_target::tracee::TraceeError> {
        // It and what it starts are not of this process's job.
        ipath_target::suspension::never();
        let process = process.clone();
        let followed = self
            .tracer
            .ask(move |family| family.follow(&process, parent));
        followed.unwrap_or(Ok(()))
    }

    /// True if a process is followed.
    pub fn is_following(&self, pid: Pid) -> bool {
        self.tracer
            .ask(move |family| family.known(pid))
            .unwrap_or(false)
    }

    /// Measures the children that were held while the first session was made, and resumes them.
    pub fn begin_held(&self) {
        let _ = self.tracer.ask(Family::begin_held);
    }

    /// Notes that a process is there which this one has started, by the thread that traces, and whose only thread that holds.
    pub fn adopt(&self, process: &Process) {
        let process = process.clone();
        let _ = self.tracer.ask(move |family| family.adopt(&process));
    }

    /// The sessions that have been made since the last time, but those of processes that have ended.
    pub fn newcomers(&self) -> Vec<Newcomer> {
        let newcomers = std::mem::take(&mut lock(&self.shared).newcomers);
        newcomers.into_values().collect()
    }

    /// The processes whose programs are over, since when by the time-stamp counter, of those whose sessions have been given out.
    pub fn over(&self) -> Vec<(Pid, u64)> {
        std::mem::take(&mut lock(&self.shared).over)
    }

    /// Adds up the profile of a session that has been given out and is over.
    pub fn gather(&self, profile: &Profile) {
        self.gathering.add(profile);
    }

    /// The sum of the sessions that are over; of all that are by now, where it is to be `whole`.
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

    /// What is to be said since the last time.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = lock(&self.shared).remarks.take();
        remarks.extend(self.gathering.failed());
        remarks
    }

    /// A line for each remark that concerned further processes, since the last time.
    pub fn repeated(&self) -> Vec<String> {
        lock(&self.shared).remarks.repeated()
    }

    /// What has come of it so far.
    pub fn seen(&self) -> Seen {
        if !lock(&self.shared).let_go.is_empty() {
            // The tracer gets no event when these processes end.
            let _ = self.tracer.ask(Family::remove_ended);
        }
        lock(&self.shared).seen
    }

    /// Handles the exit of followed processes.
    pub fn departures(&self) -> Arc<dyn Departures> {
        Letting::of(&self.shared)
    }

    /// What comes of it, also once this is gone.
    pub fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.shared))
    }

    /// Makes no more sessions in programs that are executed from now on. Children still get what their parents have.
    pub fn close(&self) {
        let _ = self.tracer.ask(|family| family.close());
    }

    /// Lets all go.
    pub fn let_go(&self) {
        let _ = self.tracer.ask(Family::let_go);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // On every way of dropping it: code left in a loader would stay, and a breakpoint there
        // would end the program.
        self.let_go();
    }
}
