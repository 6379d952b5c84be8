//! What those who follow and those who watch have of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patcher::select::{Pattern, Spot};

use super::remarks::Remarks;
use crate::session::{Answering, Changed, Departures, Options, Selection, Session};
use ipath_target::process::{Pid, Process};

/// What is measured in each program.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Functions,
    pub patterns: Vec<Pattern>,
    /// places,
    pub spots: Vec<Spot>,
    /// and what of them.
    pub options: Options,
    /// True if breakpoints may lead to what nothing else can.
    pub allows_traps: bool,
    /// Most functions of a program; with more, nothing of it is measured.
    pub most: usize,
    /// The texts of those that some program has had.
    pub met: Arc<Mutex<BTreeSet<String>>>,
}

impl Wanted {
    /// The functions and places as they were given.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let patterns = self.patterns.iter().map(Pattern::text);
        patterns.chain(self.spots.iter().map(Spot::text))
    }

    /// Takes note of what has been found in a program.
    pub fn note(&self, selection: &Selection) {
        let met = self.texts().filter(|text| selection.is_met(text));
        lock(&self.met).extend(met.map(str::to_owned));
    }

    /// What no program has had so far.
    pub fn unmet(&self) -> Vec<&str> {
        let met = lock(&self.met);
        self.texts().filter(|&text| !met.contains(text)).collect()
    }
}

/// A session that has been made in a process that was followed.
pub struct Newcomer {
    /// It.
    pub session: Session,
    /// What was done; none in a child, where it is what was done in its parent.
    pub changed: Option<Changed>,
    /// Looks at the libraries that come, where patterns wait for some.
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
            answering: waits.then(|| Answering::begin(session.process(), Some(departures))),
            session,
            changed,
        }
    }
}

/// What has come of following so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Processes that are there.
    pub living: u64,
    /// Children that share no memory with their parents.
    pub children: u64,
    /// Those which nobody knows whose children they are: what began them was killed before the kernel had told of it.
    pub orphans: u64,
    /// Those that could not be measured as their parents are.
    pub unmeasured: u64,
    /// Programs that have been executed.
    pub programs: u64,
    /// Sessions that there have been.
    pub measured: u64,
    /// Programs in which more functions match than are to be measured.
    pub with_too_many: u64,
    /// Programs that could not be measured.
    pub unmeasured_programs: u64,
    /// Processes that were detached and continued.
    pub let_go: u64,
}

/// What the thread that traces has for others.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) newcomers: BTreeMap<Pid, Newcomer>,
    /// Whose programs are over, since when by the time-stamp counter, where their sessions have been given out.
    pub(super) over: Vec<(Pid, u64)>,
    /// What could not be measured, with why.
    pub(super) remarks: Remarks,
    pub(super) seen: Seen,
    /// Processes that are no longer traced. Their ends cause no event.
    pub(super) let_go: BTreeSet<Pid>,
    /// Status (wait(2)) of the program that was started, once it has ended.
    pub(super) status: Option<i32>,
}

/// The program of a process. `None` if it has ended.
pub(super) fn program_of(process: &Process) -> Option<String> {
    process.exe().map(|exe| exe.display().to_string())
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
