//! What was measured between two snapshots of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use patcher::Avma;

use super::for_work::ForWork;
use ipath_profile::{Delta, PathEntry, Profile, Target, TimerStats};
use ipath_sampling::search::{Bounds, Cost, Measured, MeasuredPath, Overhead, Site, Window};
use ipath_session::collect::{elapsed_ns, measuring_ns};
use ipath_session::session::Session;

/// A snapshot: the profile, and the thread times up to this moment.
pub(super) struct Moment {
    pub(super) profile: Profile,
    /// The time that passed for all threads that ran, added up. See
    /// [`ipath_sampling::sampling::SampledStacks`] for all three times.
    pub(super) lived: Duration,
    /// The part of `lived` in which they waited for work.
    pub(super) idle: Duration,
    /// The part of `lived` in which they waited for a processor.
    pub(super) delayed: Duration,
}

impl Moment {
    /// The moment before the first measurement.
    pub(super) fn nothing() -> Self {
        Self {
            profile: Profile::empty(
                Target::default(),
                ipath_profile::Session::default(),
                Vec::new(),
            ),
            lived: Duration::ZERO,
            idle: Duration::ZERO,
            delayed: Duration::ZERO,
        }
    }
}

/// The addresses in the process of a profile's functions and frames.
pub(super) struct Places<'p>(&'p Profile);

impl<'p> Places<'p> {
    pub(super) fn of(profile: &'p Profile) -> Self {
        Self(profile)
    }

    fn place(&self, module: Option<usize>, address: u64) -> Avma {
        let module = module.and_then(|module| self.0.modules.get(module));
        let base = module.and_then(|module| module.base).unwrap_or(0);
        Avma(base.wrapping_add(address))
    }

    /// The first address of each function.
    pub(super) fn functions(&self) -> Vec<Avma> {
        let functions = self.0.functions.iter();
        functions
            .map(|f| self.place(Some(f.module), f.address))
            .collect()
    }

    /// An address in the call instruction of each frame.
    pub(super) fn frames(&self) -> Vec<Avma> {
        let frames = self.0.frames.iter();
        frames.map(|f| self.place(f.module, f.address)).collect()
    }
}

/// The calls and times of these functions between two moments. The overhead in the window is 0.
///
/// Subtracts waiting for work and for a processor from the time of a path. `function_at` returns
/// the start of the function that contains an address.
pub(super) fn window(
    old: &Moment,
    new: &Moment,
    functions: &BTreeSet<Avma>,
    for_work: &ForWork,
    mut function_at: impl FnMut(Avma) -> Avma,
) -> Window {
    let places = Places::of(&new.profile);
    let (starts, frames) = (places.functions(), places.frames());
    let delta = Delta::between(&old.profile, &new.profile);
    let cpu = Spent::of(&new.profile).cpu_since(Spent::of(&old.profile)) as f64;
    let since = |time: fn(&Moment) -> Duration| {
        let since = time(new).saturating_sub(time(old));
        since.as_nanos() as f64
    };
    let delayed = since(|moment| moment.delayed);
    let mut measured: BTreeMap<Avma, Vec<MeasuredPath>> =
        functions.iter().map(|f| (*f, Vec::new())).collect();
    for (index, path) in new.profile.paths.iter().enumerate() {
        let Some(paths) = measured.get_mut(&starts[path.function]) else {
            continue;
        };
        let was = delta.path(index).map(|was| &old.profile.paths[was]);
        let calls = values(path).saturating_sub(was.map_or(0, values));
        if calls == 0 {
            continue;
        }
        let site = |&frame: &usize| Site {
            function: function_at(frames[frame]),
            at: frames[frame],
        };
        let callers: Vec<Site> = path.stack.iter().map(site).collect();
        let cost = difference(path, was);
        paths.push(MeasuredPath {
            callers,
            calls,
            cost,
            idle: 0.0,
        });
    }
    let mut measured: Vec<Measured> = measured
        .into_iter()
        .map(|(function, paths)| Measured { function, paths })
        .collect();
    subtract_delay(&mut measured, delayed, cpu, for_work);
    for Measured { function, paths } in &mut measured {
        for path in paths {
            let functions: Vec<Avma> = path.callers.iter().map(|site| site.function).collect();
            let share = for_work.share(*function, &functions);
            path.cost.off *= 1.0 - share;
            path.idle = share * path.cost.sum();
        }
    }
    let busy = since(|moment| moment.lived.saturating_sub(moment.idle)) - delayed;
    let all: Cost = measured.iter().map(Measured::cost).sum();
    Window {
        ns: delta.elapsed_ns(),
        // A call that has ended in the window may have begun before it.
        whole: Cost {
            cpu: cpu.max(all.cpu),
            off: (busy - cpu).max(all.off),
        },
        overhead: 0.0,
        processor: 0.0,
        measured,
    }
}

/// Subtracts the time in which threads were ready without a processor from the off-CPU times.
/// `delayed` is that time and `cpu` the CPU time of the process, both in nanoseconds.
///
/// Functions without a sampled wait absorb it first: nothing else takes them off a processor. The
/// rest is distributed over the paths in proportion to CPU time, since a thread loses a processor
/// where it uses one.
fn subtract_delay(measured: &mut [Measured], delayed: f64, cpu: f64, for_work: &ForWork) {
    let off = |m: &Measured| m.cost().off;
    let is_ready = |m: &&mut Measured| for_work.never_waits(m.function);
    let ready: f64 = measured.iter_mut().filter(is_ready).map(|m| off(m)).sum();
    let kept = (1.0 - delayed / ready.max(1.0)).max(0.0);
    let (mut rest, mut rest_cpu) = ((delayed - ready).max(0.0), cpu);
    for one in measured.iter_mut().filter(is_ready) {
        rest_cpu -= one.cost().cpu;
        one.paths.iter_mut().for_each(|path| path.cost.off *= kept);
    }
    rest /= rest_cpu.max(1.0);
    for one in measured.iter_mut().filter(|m| !is_ready(m)) {
        for MeasuredPath { cost, .. } in &mut one.paths {
            cost.off = (cost.off - rest.min(1.0) * cost.cpu).max(0.0);
        }
    }
}

/// The times and calls of a process up to a moment, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Spent {
    elapsed: u64,
    cpu: u64,
    /// The part of the CPU time spent on measuring, in nanoseconds.
    measuring: u64,
    /// The number of calls that were measured. `None` if they were not counted.
    calls: Option<u64>,
}

impl Spent {
    /// The times and calls of a profile.
    pub(super) fn of(profile: &Profile) -> Self {
        let session = &profile.session;
        Self {
            elapsed: session.elapsed_ns,
            cpu: session.cpu_ns.unwrap_or(0),
            measuring: session.overhead.as_ref().map_or(0, |o| o.total_ns),
            calls: Some(profile.calls()),
        }
    }

    /// The time that a process with this session has spent until now. Reads no path.
    pub(super) fn now(session: &Session) -> Self {
        let segment = session.segment();
        let begun = session.document().cpu_begun_ns.unwrap_or(0);
        let cpu = session.process().cpu_time().unwrap_or(0);
        Self {
            elapsed: elapsed_ns(segment.header()),
            cpu: cpu.saturating_sub(begun),
            measuring: measuring_ns(segment),
            calls: None,
        }
    }

    /// The sum over several processes. The elapsed time is the longest one.
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        let none = Self {
            elapsed: 0,
            cpu: 0,
            measuring: 0,
            calls: Some(0),
        };
        all.fold(none, |sum, one| Self {
            elapsed: sum.elapsed.max(one.elapsed),
            cpu: sum.cpu.saturating_add(one.cpu),
            measuring: sum.measuring.saturating_add(one.measuring),
            calls: (sum.calls.zip(one.calls)).map(|(a, b)| a.saturating_add(b)),
        })
    }

    /// True if enough time has passed since `before` for a meaningful share of overhead.
    fn tells_since(self, before: Self) -> bool {
        const ENOUGH_CPU: u64 = 5_000_000;
        const ENOUGH: u64 = 1_000_000_000;
        let elapsed = self.elapsed.saturating_sub(before.elapsed);
        self.cpu_since(before) >= ENOUGH_CPU || elapsed >= ENOUGH
    }

    fn cpu_since(self, before: Self) -> u64 {
        self.cpu.saturating_sub(before.cpu)
    }

    /// The shares of CPU time and of elapsed time that measuring has taken since `before`. A nearly
    /// idle process is treated as 5 % busy, because a high share of almost no CPU time does not
    /// slow it down.
    pub(super) fn overhead_since(self, before: Self) -> Overhead {
        const LEAST_BUSY: f64 = 0.05;
        /// In nanoseconds. If measuring a call took longer, the thread lost its processor
        /// meanwhile.
        const MOST_OF_CALL: u64 = 5_000;
        let elapsed = self.elapsed.saturating_sub(before.elapsed) as f64;
        let cpu = (self.cpu_since(before) as f64).max(LEAST_BUSY * elapsed);
        let calls = self.calls.zip(before.calls);
        let calls = calls.map_or(u64::MAX, |(now, before)| now.saturating_sub(before));
        let measuring = self.measuring.saturating_sub(before.measuring);
        let measuring = measuring.min(calls.saturating_mul(MOST_OF_CALL)) as f64;
        Overhead {
            share: measuring / cpu.max(1.0),
            processor: measuring / elapsed.max(1.0),
        }
    }
}

/// Measurements of the overhead over time. A thread that loses its processor while it measures
/// seems to measure all the while. So the median counts, which is the usual overhead.
#[derive(Default)]
pub(super) struct Overheads {
    /// The times at the last measurement.
    last: Option<Spent>,
    taken: Vec<Overhead>,
}

impl Overheads {
    /// Begins to measure the overhead from this moment on.
    pub(super) fn begin(at: Spent) -> Self {
        Self {
            last: Some(at),
            taken: Vec::new(),
        }
    }

    /// Adds a measurement of the overhead since the last one, unless too little time has passed.
    pub(super) fn note(&mut self, now: Spent) {
        match self.last {
            // A process that has not run yields no information.
            Some(before) if !now.tells_since(before) => {}
            Some(before) => {
                self.taken.push(now.overhead_since(before));
                self.last = Some(now);
            }
            None => self.last = Some(now),
        }
    }

    /// The measurement whose share is the median, the lower one of two. The default without
    /// measurements.
    pub(super) fn usual(&self) -> Overhead {
        let mut taken = self.taken.clone();
        taken.sort_by(|a, b| a.share.total_cmp(&b.share));
        // Of two medians the lower one.
        let middle = taken.len().saturating_sub(1) / 2;
        taken.get(middle).copied().unwrap_or_default()
    }

    /// True if both of the last two measurements exceeded `times` the limit.
    pub(super) fn is_above(&self, bounds: &Bounds, times: f64) -> bool {
        let mut last = self.taken.iter().rev().take(2);
        self.taken.len() >= 2 && last.all(|taken| bounds.is_above(*taken, times))
    }
}

const WALL: &str = "wall";
const CPU: &str = "cpu";

/// The number of calls on a path that have a wall time.
fn values(path: &PathEntry) -> u64 {
    path.metrics.timers.get(WALL).map_or(0, TimerStats::values)
}

/// The exclusive CPU time and off-CPU time on a path since `was`, in nanoseconds. Without `was`:
/// since the start. Negative differences count as 0.
fn difference(path: &PathEntry, was: Option<&PathEntry>) -> Cost {
    let own = |path: &PathEntry, metric: &str| {
        let stats = path.metrics.timers.get(metric);
        stats.and_then(|stats| stats.exclusive).unwrap_or(0)
    };
    let since = |metric: &str| {
        let before = was.map_or(0, |was| own(was, metric));
        own(path, metric).saturating_sub(before).max(0) as f64
    };
    let (wall, cpu) = (since(WALL), since(CPU));
    Cost {
        cpu: cpu.min(wall),
        off: (wall - cpu).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_sampling::sampling::SampledStack;

    fn measured(function: u64, cpu: f64, off: f64) -> Measured {
        let path = MeasuredPath {
            callers: Vec::new(),
            calls: 1,
            cost: Cost { cpu, off },
            idle: 0.0,
        };
        Measured {
            function: Avma(function),
            paths: vec![path],
        }
    }

    #[test]
    fn a_function_that_never_waits_is_ready_when_it_is_off_a_processor() {
        let waits = SampledStack {
            functions: vec![Avma(2)],
            charged: 0,
            cpu: 0.0,
            waited: 60.0,
            for_work: 0.0,
        };
        let functions = BTreeSet::from([Avma(1), Avma(2)]);
        let off = |delayed: f64, sees_waits: bool| {
            let mut all = [measured(1, 300.0, 16.0), measured(2, 100.0, 60.0)];
            let sampled = std::slice::from_ref(&waits);
            let for_work = ForWork::of(sampled, &functions, sees_waits);
            subtract_delay(&mut all, delayed, 400.0, &for_work);
            all.map(|m| m.cost().off)
        };
        assert_eq!(off(16.0, true), [0.0, 60.0]);
        assert_eq!(off(20.0, true), [0.0, 56.0]);
        // No more is subtracted than the functions have.
        assert_eq!(off(12.0, true), [4.0, 60.0]);
        // Without samples of waits, the time is distributed over all functions.
        assert_eq!(off(16.0, false), [4.0, 56.0]);
    }

    #[test]
    fn a_thread_that_lost_its_processor_while_it_measured_does_not_count() {
        let of = |share: f64| Overhead {
            share,
            processor: share,
        };
        let overheads = |shares: &[f64]| Overheads {
            last: None,
            taken: shares.iter().copied().map(of).collect(),
        };
        assert_eq!(overheads(&[0.01, 9.0, 0.02, 0.01]).usual(), of(0.01));
        assert_eq!(overheads(&[0.6, 0.5, 0.7, 0.1]).usual(), of(0.5));
        assert_eq!(overheads(&[]).usual(), of(0.0));
        // Periods in which the process has not run do not count.
        let spent = |elapsed: u64, cpu: u64, measuring: u64| Spent {
            elapsed: elapsed * 1_000_000,
            cpu: cpu * 1_000_000,
            measuring: measuring * 1_000_000,
            calls: Some(measuring * 1_000_000),
        };
        let mut seen = Overheads::default();
        for (elapsed, cpu, measuring) in [(0, 0, 0), (250, 0, 0), (500, 20, 10), (750, 21, 10)] {
            seen.note(spent(elapsed, cpu, measuring));
        }
        let shares: Vec<f64> = seen.taken.iter().map(|taken| taken.share).collect();
        assert_eq!(shares, [0.4]);
        // Times above the maximum for measuring a call do not count.
        let (begin, end) = (spent(0, 0, 0), spent(1000, 100, 50));
        let calls = Some(200);
        assert_eq!(Spent { calls, ..end }.overhead_since(begin).share, 0.01);
        assert_eq!(
            Spent { calls: None, ..end }.overhead_since(begin).share,
            0.5
        );
        let bounds = Bounds {
            min_share: 0.01,
            explain: 0.9,
            most: 16,
            max_overhead: 0.1,
            patience: 0,
        };
        assert!(!overheads(&[0.01, 9.0]).is_above(&bounds, 1.0));
        assert!(!overheads(&[9.0]).is_above(&bounds, 1.0));
        assert!(overheads(&[0.01, 9.0, 0.2]).is_above(&bounds, 1.0));
        // In a mostly idle process the limit is a share of a processor.
        let idle = Overhead {
            share: 0.9,
            processor: 0.002,
        };
        assert!(!bounds.is_above(idle, 1.0));
    }
}
