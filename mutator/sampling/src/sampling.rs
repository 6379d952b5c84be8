//! Finds where the time of a process goes, by samples. Perf events of each thread let the kernel
//! copy the registers and the stack, and the stack is walked here. Nothing is changed in the
//! process. (csprof: Froyd, Mellor-Crummey, Fowler 2005, with the stacks walked outside the
//! process.)
//!
//! On a processor, a thread is sampled by the clock of its CPU time. Off it, every n-th switch off
//! the processor is sampled, with n chosen to limit the number of samples. All switches are
//! recorded, so the duration of each wait is known. A sampled wait stands for n. Threads that
//! switch often, and threads of large processes, are sampled in windows. Each window stands for the
//! time since the previous one. Without perf events, threads are stopped instead.

mod activity;
mod budget;
mod code;
mod event;
mod limits;
mod own;
mod paths;
mod purpose;
mod record;
mod ring;
mod role;
mod several;
mod shares;
mod stacks;
mod stops;
mod thread;
mod unwinding;
mod watched;
mod windows;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

pub use event::{NoEvents, Seeing};
pub use several::{Together, begin_all, together};
pub use shares::{Function, Share, Shares};
pub use stacks::{Generated, SampledStack, SampledStacks};
pub use stops::NoStops;

use activity::{Pace, now};
use code::Code;
use event::Sight;
use paths::Paths;
use purpose::Purposes;
use stops::Stops;
use thread::{Seen, Spent, Tally};
use watched::Watched;
use windows::Windows;

use ipath_target::process::modules::Module;
use ipath_target::process::{Activity, Process, Tid};
use ipath_target::progress::{THREADS, over};

/// The minimum time between two scans for new threads.
const UNTIL_NEW_THREADS: Duration = Duration::from_millis(100);
/// The time between two scans is also at least this many times the duration of the last scan.
const LEISURE: u32 = 30;
/// The time for which the switches of threads are counted before sampling begins.
const AT_FIRST: Duration = Duration::from_millis(20);

/// Samples a process.
pub struct Sampler {
    process: Process,
    paths: Paths,
    means: Means,
    /// The threads that the last scan found, by thread id.
    threads: BTreeMap<i32, Watched>,
    /// The time at which sampling began: CLOCK_MONOTONIC, in nanoseconds.
    begun: u64,
    /// The time at which the last scan began.
    scanned: Instant,
    /// The duration of the last scan.
    scan_took: Duration,
    /// The CPU time of the process at the last scan, in nanoseconds. `None` if it could not be
    /// read.
    cpu_time: Option<u64>,
    /// The pace of all threads of the process together.
    pace: Pace,
    /// The samples of ended threads.
    ended: Tally,
    /// The number of ended threads that ran but were not sampled.
    ended_unseen: usize,
    /// The samples at each path when shares were last computed, indexed by the number of the path.
    /// Empty after paths were merged.
    told: Vec<Seen>,
}

/// The means of sampling.
enum Means {
    Events(Box<Windows>),
    Stops(Stops),
    /// Sampling has ended. With the part of the process that was visible.
    Over(Seeing),
}

/// The reason why a process cannot be sampled.
#[derive(Debug)]
pub enum NotSampled {
    /// Its threads cannot be listed.
    Threads(io::Error),
    /// No thread can be sampled by events.
    Events(NoEvents),
    /// There are no perf events, and its threads cannot be stopped.
    Stops(NoStops),
    /// All of its threads have ended.
    Ended,
}

impl Sampler {
    /// Begins to sample.
    ///
    /// # Errors
    /// None of its threads can be sampled.
    pub fn begin(process: &Process) -> Result<Self, NotSampled> {
        let prepared = Self::prepare(process)?;
        std::thread::sleep(AT_FIRST);
        prepared.start()
    }

    /// Scans the threads for the first time. Fails if they cannot be listed.
    fn prepare(process: &Process) -> Result<Self, NotSampled> {
        let mut sampler = Self {
            process: process.clone(),
            paths: Paths::of(Code::of(process)),
            means: Means::Events(Box::new(Windows::of(
                process,
                Sight::Whole,
                Pace::default(),
            ))),
            threads: BTreeMap::new(),
            begun: now(),
            scanned: Instant::now(),
            scan_took: Duration::ZERO,
            cpu_time: process.cpu_time(),
            pace: Pace::default(),
            ended: Tally::default(),
            ended_unseen: 0,
            told: Vec::new(),
        };
        sampler.scan().map_err(NotSampled::Threads)?;
        Ok(sampler)
    }

    /// Begins to sample, [`AT_FIRST`] after the first scan: by events if the kernel allows them,
    /// otherwise by stops. Fails if neither is possible.
    fn start(self) -> Result<Self, NotSampled> {
        let mut sampler = self;
        sampler.scan().map_err(NotSampled::Threads)?;
        for sight in [Sight::Whole, Sight::UserMode] {
            match sampler.open(sight) {
                Err(NotSampled::Events(cause)) if is_forbidden(&cause) => {}
                opened => return opened.map(|()| sampler),
            }
        }
        let stops = Stops::of(&sampler.process).map_err(NotSampled::Stops)?;
        sampler.means = Means::Stops(stops);
        Ok(sampler)
    }

    /// Begins to sample by events. Fails if no thread can be sampled.
    fn open(&mut self, sight: Sight) -> Result<(), NotSampled> {
        let mut windows = Windows::of(&self.process, sight, self.pace);
        for &tid in self.threads.keys() {
            windows.meet(tid);
        }
        windows.sort(&self.threads);
        windows.look(&mut self.threads, &mut self.paths);
        let (has_opened, cause) = (windows.has_opened, windows.cause.take());
        self.means = Means::Events(Box::new(windows));
        match (has_opened, cause) {
            (true, _) => Ok(()),
            (false, Some(cause)) => Err(NotSampled::Events(cause)),
            (false, None) => Err(NotSampled::Ended),
        }
    }

    /// The visible part of the process.
    pub fn seeing(&self) -> Seeing {
        match &self.means {
            Means::Stops(_) => Seeing::Stops,
            Means::Over(seeing) => *seeing,
            Means::Events(windows) => match windows.sight {
                Sight::Whole => Seeing::Whole,
                Sight::UserMode => Seeing::UserMode,
            },
        }
    }

    /// Stops sampling. Keeps the samples taken so far.
    pub fn stop(&mut self) {
        self.look();
        self.means = Means::Over(self.seeing());
    }

    /// The present time, for [`Sampler::stopped_since`]: CLOCK_MONOTONIC, in nanoseconds.
    pub fn moment() -> u64 {
        now()
    }

    /// Notes that ipath has stopped the process, or made calls in it, since `begun`
    /// ([`Sampler::moment`]). Drops all samples that were not read before. Does nothing without
    /// events. Stops are not counted as waiting: in a mostly idle process they would be most of it.
    pub fn stopped_since(&mut self, begun: u64) {
        if let Means::Events(windows) = &mut self.means {
            windows.stops.push(begun..now());
            windows.is_discarding = true;
            windows.drain_all(&mut self.threads, &mut self.paths);
            windows.is_discarding = false;
        }
    }

    /// Reads new samples. Call it about twenty times a second.
    pub fn look(&mut self) {
        self.paths.code.refresh();
        if self.scanned.elapsed() >= UNTIL_NEW_THREADS.max(LEISURE * self.scan_took) {
            // If the threads cannot be listed, sampling continues with the known ones.
            let _ = self.scan();
        }
        self.paths.renew();
        match &mut self.means {
            Means::Events(windows) => windows.look(&mut self.threads, &mut self.paths),
            Means::Stops(stops) => stops.look(&mut self.threads, &mut self.paths),
            Means::Over(_) => {}
        }
        if self.paths.are_many() {
            self.fold();
        }
    }

    /// Updates the list of threads and their activity.
    fn scan(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        let seconds = begin.duration_since(self.scanned).as_secs_f64();
        let tids = self.process.list_tids()?;
        let living: HashSet<i32> = tids.iter().map(|tid| tid.0).collect();
        let is_gone = |tid: &&i32| !living.contains(tid);
        let gone: Vec<i32> = self.threads.keys().filter(is_gone).copied().collect();
        for tid in gone {
            self.part(tid);
        }
        for Tid(tid) in over(THREADS, tids) {
            let activity = Activity::of(self.process.pid, Tid(tid)).unwrap_or_default();
            match self.threads.get_mut(&tid) {
                Some(thread) => {
                    if thread.follow(activity, now(), seconds)
                        && let Means::Events(windows) = &self.means
                    {
                        windows.pace(thread);
                    }
                }
                None => {
                    self.threads.insert(tid, Watched::met(now(), activity));
                    if let Means::Events(windows) = &mut self.means {
                        windows.meet(tid);
                    }
                }
            }
        }
        let cpu_time = self.process.cpu_time();
        let passed = cpu_time
            .unwrap_or(0)
            .saturating_sub(self.cpu_time.unwrap_or(0));
        let turns = self.threads.values().map(|thread| thread.pace.turns);
        self.pace = Pace {
            processor: passed as f64 / 1e9 / seconds.max(0.001),
            turns: turns.sum(),
        };
        if let Means::Events(windows) = &mut self.means {
            windows.sort(&self.threads);
            windows.budget.follow(self.pace);
        }
        self.cpu_time = cpu_time;
        self.scanned = begin;
        self.scan_took = begin.elapsed();
        Ok(())
    }

    /// Removes a thread that has ended. Its samples are kept.
    fn part(&mut self, tid: i32) {
        let Some(mut thread) = self.threads.remove(&tid) else {
            return;
        };
        if let Means::Events(windows) = &mut self.means {
            windows.part(&mut thread, &mut self.paths);
        }
        let purposes = Purposes::of(&self.paths);
        if thread.has_run && !thread.tell(&mut self.ended, now(), |time| purposes.for_work(time)) {
            self.ended_unseen += 1;
        }
    }

    /// Merges the paths with the least time. Their numbers change.
    fn fold(&mut self) {
        let all = self.tally().0;
        let seen = shares::by_path(self.paths.all().len(), &all);
        let weights: Vec<f64> = seen.iter().map(Seen::time).collect();
        let new = self.paths.fold(&weights);
        for thread in self.threads.values_mut() {
            thread.time.renumber(&new);
        }
        if let Means::Stops(stops) = &mut self.means {
            stops.renumber(&new);
        }
        self.ended.renumber(&new);
        self.told.clear();
    }

    /// The samples of all threads, the number of threads that did not run, and the number of those
    /// that ran but were not sampled.
    fn tally(&self) -> (Tally, usize, usize) {
        let now = now();
        let mut all = self.ended.clone();
        let (mut idle, mut unseen) = (0, self.ended_unseen);
        let purposes = Purposes::of(&self.paths);
        for thread in self.threads.values() {
            match thread.has_run {
                false => idle += 1,
                true if !thread.tell(&mut all, now, |time| purposes.for_work(time)) => unseen += 1,
                true => {}
            }
        }
        (all, idle, unseen)
    }

    /// Reads the rings. Returns the number of records lost since sampling began, or 0 without
    /// events.
    fn drain(&mut self) -> u64 {
        match &mut self.means {
            Means::Events(windows) => {
                windows.drain_all(&mut self.threads, &mut self.paths);
                windows.lost
            }
            Means::Stops(_) | Means::Over(_) => 0,
        }
    }

    /// The distribution of time until now, with the `most` heaviest functions.
    pub fn shares(&mut self, most: usize) -> Shares {
        let lost = self.drain();
        let (all, idle, unseen) = self.tally();
        let observed = Duration::from_nanos(now().saturating_sub(self.begun));
        let (code, paths) = (&self.paths.code, self.paths.all());
        self.told = shares::by_path(paths.len(), &all);
        let spent = Spent {
            cpu: all.cpu,
            waited: all.waited,
        };
        let found = shares::of(code, paths, &self.told, spent, observed, most);
        Shares {
            seeing: self.seeing(),
            lost,
            stale: self.stale(),
            idle,
            unseen,
            ..found
        }
    }

    /// The time since records were last read from any ring. 0 if the process was idle at the last
    /// scan, and without events.
    fn stale(&self) -> Duration {
        let Means::Events(windows) = &self.means else {
            return Duration::ZERO;
        };
        let has_run = self.pace.processor > 0.01 || self.pace.turns > 10.0;
        let since = now().saturating_sub(windows.recorded);
        Duration::from_nanos(if has_run { since } else { 0 })
    }

    /// The demangled names of the callers on the heaviest path to a function, the nearest first, at
    /// most 12. A final entry marks an incomplete stack. `function` is from the last call of
    /// [`Sampler::shares`].
    pub fn callers(&self, function: &Function) -> Vec<String> {
        let paths = self.paths.all();
        self.paths.code.callers(function.id, paths, &self.told)
    }

    /// The modules that are mapped, each with the index by which functions name it.
    pub fn modules(&self) -> Vec<(usize, Module)> {
        self.paths.code.modules()
    }
}

/// True if the kernel forbids or lacks this kind of event. False if only the ring cannot be mapped.
fn is_forbidden(cause: &NoEvents) -> bool {
    const FORBIDDEN: [i32; 5] = [
        libc::EACCES,
        libc::EPERM,
        libc::ENOSYS,
        libc::ENOENT,
        libc::EOPNOTSUPP,
    ];
    match cause {
        NoEvents::Event(error) => error.raw_os_error().is_some_and(|e| FORBIDDEN.contains(&e)),
        NoEvents::Ring(_) => false,
    }
}
