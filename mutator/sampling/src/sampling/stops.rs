//! Threads looked at where there are no perf events: those that run are stopped for a moment, some of them, each in turn.
//! Those that sleep are left alone: /proc says where they are.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::activity::now;
use super::paths::{PathId, Paths};
use super::thread::Met;
use super::watched::Watched;
use super::windows::{how_met, stack_at};
use crate::arch::Registers;
use ipath_target::process::{Activity, Process, Tid, is_passing, read_text, thread_state};
use ipath_target::random;
use ipath_target::tracee::{TraceeError, glance, tracing};

/// Stops a second, of all threads together, and at once.
const STOPS: f64 = 80.0;
const MOST_AT_ONCE: f64 = 8.0;
/// How long a thread may take to stop: it may have no processor.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time between two looks, at the least, ns, and what it varies by.
const A_LOOK: u64 = 15_000_000;
const JITTER: u64 = 10_000_000;
/// Threads that are looked at in one look.
const MOST_THREADS: usize = 256;

/// What is known of the threads of a process.
pub(super) struct Stops {
    process: Process,
    /// Stops that may be made now.
    credit: f64,
    earned: u64,
    next_look: u64,
    last: HashMap<i32, Last>,
    /// The thread that was looked at last.
    turn: i32,
    /// Why a thread could not be stopped.
    pub(super) cause: Option<TraceeError>,
}

/// How a thread was found the last time.
struct Last {
    at: u64,
    activity: Option<Activity>,
    /// Where it waits.
    path: Option<PathId>,
}

/// Who may not stop a process.
#[derive(Debug)]
pub enum NoStops {
    /// This process traces it, with this name.
    Traced(i32, String),
    /// The kernel does not allow it.
    Refused(TraceeError),
    /// It has ended.
    Ended,
}

impl Stops {
    /// Begins, where its threads may be stopped: one is.
    pub(super) fn of(process: &Process) -> Result<Self, NoStops> {
        if let Some((_, by)) = process.tracer().filter(|&(_, by)| !is_passing(by)) {
            let name = read_text(format!("/proc/{by}/comm")).unwrap_or_default();
            return Err(NoStops::Traced(by, name.trim().to_owned()));
        }
        let tids = process.tids().unwrap_or_default();
        let tid = *tids.first().ok_or(NoStops::Ended)?;
        tracing(|| glance(process.pid, tid, PATIENCE, |_| ())).map_err(NoStops::Refused)?;
        Ok(Self {
            process: process.clone(),
            credit: MOST_AT_ONCE,
            earned: now(),
            next_look: 0,
            last: HashMap::new(),
            turn: 0,
            cause: None,
        })
    }

    /// Looks at threads, where it is time to.
    pub(super) fn look(&mut self, threads: &mut BTreeMap<i32, Watched>, paths: &mut Paths) {
        let at = now();
        if at < self.next_look {
            return;
        }
        self.next_look = at + A_LOOK + u64::from(random::number()) % JITTER;
        let earned = at.saturating_sub(self.earned) as f64 / 1e9 * STOPS;
        self.credit = (self.credit + earned).min(MOST_AT_ONCE);
        self.earned = at;
        self.last.retain(|tid, _| threads.contains_key(tid));
        let mut running = Vec::new();
        for tid in self.turns(threads) {
            let Some(thread) = threads.get_mut(&tid) else {
                continue;
            };
            if let Some(since) = self.look_at(tid, thread, at, paths) {
                running.push((tid, since));
            }
        }
        self.stop_some(running, threads, paths);
    }

    /// The threads whose turn it is.
    fn turns(&mut self, threads: &BTreeMap<i32, Watched>) -> Vec<i32> {
        let after = threads.range(self.turn.saturating_add(1)..);
        let all = after.chain(threads.range(..=self.turn));
        let turns: Vec<i32> = all.map(|(&tid, _)| tid).take(MOST_THREADS).collect();
        self.turn = turns.last().copied().unwrap_or(0);
        turns
    }

    /// Looks at a thread from outside. For how long it is to stand if it runs, ns.
    fn look_at(
        &mut self,
        tid: i32,
        thread: &mut Watched,
        at: u64,
        paths: &mut Paths,
    ) -> Option<u64> {
        let state = thread_state(self.process.pid, Tid(tid))?;
        let activity = Activity::of(self.process.pid, Tid(tid));
        let last = self.last.remove(&tid);
        let since = last.as_ref().map_or(0, |last| at.saturating_sub(last.at));
        thread.looked_for(since);
        let mut path = None;
        if state == 'S' || state == 'D' {
            // It has waited all the time where it was given no processor meanwhile.
            let is_same = |last: &Last| last.activity.is_some() && last.activity == activity;
            path = match last.filter(is_same) {
                Some(last) => last.path,
                None => match how_met(&self.process, Tid(tid), paths) {
                    Met::Waiting(path) => path,
                    Met::Running => None,
                },
            };
            thread.time.off_processor(path, since);
        }
        let found = Last { at, activity, path };
        self.last.insert(tid, found);
        (state == 'R' && since > 0).then_some(since)
    }

    /// Stops as many of those that run as may be, by lot; they stand for all of them.
    fn stop_some(
        &mut self,
        mut running: Vec<(i32, u64)>,
        threads: &mut BTreeMap<i32, Watched>,
        paths: &mut Paths,
    ) {
        let all = running.len();
        let count = all.min(self.credit.max(0.0) as usize);
        if count == 0 {
            return;
        }
        for place in 0..count {
            let other = place + random::number() as usize % (all - place);
            running.swap(place, other);
        }
        running.truncate(count);
        self.credit -= count as f64;
        let process = &self.process;
        // Whatever comes in between, the kernel lets all of them go with the thread that this is done on.
        let found = tracing(|| {
            let look = |&(tid, since): &(i32, u64)| {
                let seen = glance(process.pid, Tid(tid), PATIENCE, |thread| {
                    let stack = stack_at(process, thread.sp()).unwrap_or_default();
                    (Registers::of_stopped(thread.registers()), stack)
                });
                (tid, since, seen)
            };
            running.iter().map(look).collect::<Vec<_>>()
        });
        let mut seen = Vec::new();
        for (tid, since, found) in found {
            match found {
                Ok(Some((registers, stack))) => seen.push((tid, since, registers, stack)),
                Ok(None) => {}
                Err(error) => drop(self.cause.get_or_insert(error)),
            }
        }
        let stands_for = all as f64 / seen.len().max(1) as f64;
        for (tid, since, registers, stack) in seen {
            if let Some(thread) = threads.get_mut(&tid) {
                thread.has_run = true;
                let path = paths.walk(Some(&registers), &stack);
                let time = since as f64 * stands_for;
                thread.time.on_processor(path, time as u64);
            }
        }
    }

    /// Has paths by other numbers.
    pub(super) fn renumber(&mut self, new: &[PathId]) {
        for path in self.last.values_mut().filter_map(|last| last.path.as_mut()) {
            *path = new[*path as usize];
        }
    }
}
