//! From two profiles of a session to what was measured in between.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use patcher::Avma;

use crate::profile::{Delta, PathEntry, Profile, TimerStats};
use crate::search::{Cost, Measured, MeasuredPath, Site, Window};

/// A moment: the profile, and the time of the threads that have run until then.
pub(super) struct Moment {
    pub(super) profile: Profile,
    /// See [`crate::sampling::SampledStacks`].
    pub(super) lived: Duration,
    /// See `lived`.
    pub(super) idle: Duration,
}

/// Where things of a profile are in the process.
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

/// What was measured of these functions between two moments. `function_at` gives the first address of the function that an
/// address is in.
pub(super) fn window(
    old: &Moment,
    new: &Moment,
    functions: &BTreeSet<Avma>,
    mut function_at: impl FnMut(Avma) -> Avma,
) -> Window {
    let places = Places::of(&new.profile);
    let (starts, frames) = (places.functions(), places.frames());
    let delta = Delta::between(&old.profile, &new.profile);
    let mut measured: BTreeMap<Avma, Vec<MeasuredPath>> =
        functions.iter().map(|f| (*f, Vec::new())).collect();
    for (index, path) in new.profile.paths.iter().enumerate() {
        let Some(paths) = measured.get_mut(&starts[path.function]) else {
            continue;
        };
        let was = delta.path(index).map(|was| &old.profile.paths[was]);
        let (calls, cost) = (
            values(path).saturating_sub(was.map_or(0, values)),
            difference(path, was),
        );
        if calls == 0 {
            continue;
        }
        let site = |&frame: &usize| Site {
            function: function_at(frames[frame]),
            at: frames[frame],
        };
        paths.push(MeasuredPath {
            callers: path.stack.iter().map(site).collect(),
            calls,
            cost,
        });
    }
    let measured: Vec<Measured> = measured
        .into_iter()
        .map(|(function, paths)| Measured { function, paths })
        .collect();
    let cpu_ns = |moment: &Moment| moment.profile.session.cpu_ns.unwrap_or(0);
    let cpu = cpu_ns(new).saturating_sub(cpu_ns(old)) as f64;
    let busy = |moment: &Moment| moment.lived.saturating_sub(moment.idle);
    let busy = busy(new).saturating_sub(busy(old)).as_nanos() as f64;
    let all: Cost = measured.iter().map(Measured::cost).sum();
    let ns = delta.elapsed_ns();
    Window {
        ns,
        // A call that has ended may have begun before.
        whole: Cost {
            cpu: cpu.max(all.cpu),
            off: (busy - cpu).max(all.off),
        },
        overhead: overhead(old, new, cpu.max(ns as f64 * LEAST_BUSY)),
        measured,
    }
}

/// What uses less CPU time than this of one processor is not slowed down by what is a part of that.
const LEAST_BUSY: f64 = 0.05;

fn overhead(old: &Moment, new: &Moment, cpu: f64) -> f64 {
    let taken = |moment: &Moment| {
        let overhead = moment.profile.session.overhead.as_ref();
        overhead.map_or(0, |overhead| overhead.total_ns)
    };
    taken(new).saturating_sub(taken(old)) as f64 / cpu.max(1.0)
}

const WALL: &str = "wall";
const CPU: &str = "cpu";

/// Calls that were timed.
fn values(path: &PathEntry) -> u64 {
    path.metrics.timers.get(WALL).map_or(0, TimerStats::values)
}

/// Time in the function alone since then.
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
