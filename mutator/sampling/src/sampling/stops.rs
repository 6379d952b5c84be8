//! Samples threads without perf events. Some of the running threads are stopped for a moment, in
//! turn. Sleeping threads are not stopped, because /proc tells where they wait.

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

/// The maximum number of stops per second of all threads together.
const STOPS: f64 = 80.0;
/// The maximum number of stops at once.
const MOST_AT_ONCE: f64 = 8.0;
/// The time that a thread may take to stop. It may have no processor.
const PATIENCE: Duration = Duration::from_millis(20);
/// The minimum time between two looks, in nanoseconds.
const A_LOOK: u64 = 15_000_000;
/// A random time up to this is added to the time between two looks, in nanoseconds.
const JITTER: u64 = 10_000_000;
/// The most threads to look at in one look.
const MOST_THREADS: usize = 256;

/// The state of sampling by stops.
pub(super) struct Stops {
    process: Process,
    /// The number of stops that may be made now.
    credit: f64,
    /// The time up to which credit was added: CLOCK_MONOTONIC, in nanoseconds.
    earned: u64,
    /// The earliest time of the next look: CLOCK_MONOTONIC, in nanoseconds.
    next_look: u64,
    /// The state of each thread at its last look, by thread id.
    last: HashMap<i32, Last>,
    /// The id of the last thread that was looked at.
    turn: i32,
    /// The reason why the first such thread could not be stopped. `None` if all could.
    pub(super) cause: Option<TraceeError>,
}

/// The state of a thread at the last look.
struct Last {
    /// The time of the look: CLOCK_MONOTONIC, in nanoseconds.
    at: u64,
    activity: Option<Activity>,
    /// The path at which it waits. `None` if it does not wait or the path is unknown.
    path: Option<PathId>,
}

/// The reason why a process cannot be stopped.
#[derive(Debug)]
pub enum NoStops {
    /// The process with this id and name traces it.
    Traced(i32, String),
    /// The kernel does not allow it.
    Refused(TraceeError),
    /// It has ended.
    Ended,
}

impl Stops {
    /// Begins if the threads may be stopped. This is tried with one of them.
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

    /// Looks at threads, if the time of the next look has come. Adds samples to them.
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

    /// The ids of the next threads to look at, at most [`MOST_THREADS`]. Advances the turn.
    fn turns(&mut self, threads: &BTreeMap<i32, Watched>) -> Vec<i32> {
        let after = threads.range(self.turn.saturating_add(1)..);
        let all = after.chain(threads.range(..=self.turn));
        let turns: Vec<i32> = all.map(|(&tid, _)| tid).take(MOST_THREADS).collect();
        self.turn = turns.last().copied().unwrap_or(0);
        turns
    }

    /// Looks at a thread from outside. Adds a sample if it waits. Returns the time since its last
    /// look in nanoseconds if it runs. `None` if it waits, has ended, or is looked at for the first
    /// time.
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
            // A thread that got no processor since the last look has waited all the time.
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

    /// Stops a random selection of the running threads, within the credit. They stand for all
    /// running threads.
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
        // The kernel releases all of them when the tracing thread ends, for whatever reason.
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

    /// Replaces the numbers of paths. `new` is indexed by the old number.
    pub(super) fn renumber(&mut self, new: &[PathId]) {
        for path in self.last.values_mut().filter_map(|last| last.path.as_mut()) {
            *path = new[*path as usize];
        }
    }
}
