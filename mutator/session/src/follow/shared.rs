//! Data that the tracing thread shares with the threads that watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patcher::select::{Pattern, Spot};

use super::remarks::Remarks;
use crate::session::{Answering, Changed, Departures, Options, Selection, Session, SessionError};
use ipath_target::process::{Pid, Process};

/// The measurements that are requested for each program.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The patterns of the functions to measure.
    pub patterns: Vec<Pattern>,
    /// The places in code whose executions are to be counted.
    pub spots: Vec<Spot>,
    /// The options of each session, such as its metrics.
    pub options: Options,
    /// True if a breakpoint may be used where nothing else is possible.
    pub allows_traps: bool,
    /// The maximum number of functions in a program. If more match, none of them is measured.
    pub most: usize,
    /// The reason why a program is not measured, in words for users.
    pub why: fn(&SessionError, &Process) -> String,
    /// The texts of patterns and places that have matched in some program.
    pub met: Arc<Mutex<BTreeSet<String>>>,
}

impl Wanted {
    /// The texts of the patterns and places, as they were given.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let patterns = self.patterns.iter().map(Pattern::text);
        patterns.chain(self.spots.iter().map(Spot::text))
    }

    /// Records which patterns and places have matched in a program.
    pub fn note(&self, selection: &Selection) {
        let met = self.texts().filter(|text| selection.is_met(text));
        lock(&self.met).extend(met.map(str::to_owned));
    }

    /// The texts of the patterns and places that have not matched in any program so far.
    pub fn unmet(&self) -> Vec<&str> {
        let met = lock(&self.met);
        self.texts().filter(|&text| !met.contains(text)).collect()
    }
}

/// A session that was created in a followed process.
pub struct Newcomer {
    /// The session that was created.
    pub session: Session,
    /// The changes that were made; `None` in a child, which has the changes of its parent.
    pub changed: Option<Changed>,
    /// Handles libraries that are loaded and threads that wait to leave. `None` if the session
    /// awaits neither.
    pub answering: Option<Answering>,
}

impl Newcomer {
    pub(super) fn of(
        session: Session,
        changed: Option<Changed>,
        departures: Arc<dyn Departures>,
    ) -> Self {
        let waits = session.document().is_waited_in();
        Self {
            answering: waits.then(|| Answering::begin(session.process(), Some(departures), true)),
            session,
            changed,
        }
    }
}

/// Counts of the results so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of followed processes that exist now.
    pub living: u64,
    /// The number of children that share no memory with their parents.
    pub children: u64,
    /// The number of children whose parents are unknown, because the creator was killed before the
    /// kernel reported it.
    pub orphans: u64,
    /// The number of children that could not be measured like their parents.
    pub unmeasured: u64,
    /// The number of programs that followed processes have executed.
    pub programs: u64,
    /// The number of sessions that have been created.
    pub measured: u64,
    /// The number of programs in which more functions match than may be measured.
    pub with_too_many: u64,
    /// The number of executed programs that could not be measured.
    pub unmeasured_programs: u64,
    /// The number of processes that were detached and continued.
    pub let_go: u64,
}

/// Results of the tracing thread for other threads.
#[derive(Default)]
pub(super) struct Shared {
    /// Sessions that have not been handed out yet.
    pub(super) newcomers: BTreeMap<Pid, Newcomer>,
    /// Processes whose programs have ended, with the time of the end in ticks of the time-stamp
    /// counter. Leaves out processes whose sessions had not been handed out.
    pub(super) over: Vec<(Pid, u64)>,
    /// Reasons why processes are not measured.
    pub(super) remarks: Remarks,
    pub(super) seen: Seen,
    /// Processes that are no longer traced. Their ends cause no event.
    pub(super) let_go: BTreeSet<Pid>,
    /// The status (wait(2)) of the program that was started. `None` until the program has ended.
    pub(super) status: Option<i32>,
}

/// The path of a process's program. `None` if the process has ended.
pub(super) fn program_of(process: &Process) -> Option<String> {
    process.exe().map(|exe| exe.display().to_string())
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
