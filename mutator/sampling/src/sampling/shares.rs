//! Shares of time, estimated from samples: of each function, on a processor and off it, with error
//! bounds.

use std::collections::HashMap;
use std::time::Duration;

use patcher::{Avma, Svma};

use ipath_profile::UNKNOWN_CALLERS;

use super::code::{Code, FunctionId, Path};
use super::event::Seeing;
use super::thread::{Factors, Seen, Spent, Tally};

/// An estimated share, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The share.
    pub value: f64,
    /// The error in either direction, at 95 % confidence.
    pub error: f64,
}

/// The time of a function and of its callees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its number in the sampler.
    pub(super) id: FunctionId,
    /// Its demangled name, or `module+0xADDR` if it has no name.
    pub name: String,
    /// Its linkage name. Empty if it has none.
    pub linkage: String,
    /// Index of its module, as in [`super::Sampler::modules`]. `None` for code that is in no file.
    pub module: Option<usize>,
    /// The path of the module. Empty if there is none.
    pub path: String,
    /// The name of the module for users: `[jit]` if there is none, `[ipath]` for memory that ipath
    /// mapped.
    pub file: String,
    /// True if ipath mapped it.
    pub is_own: bool,
    /// False for code of a file in which no function is known.
    pub is_known: bool,
    /// True for a part of a compiler's runtime that generated code calls all the time: measuring
    /// its calls would take most of the time.
    pub is_built_in: bool,
    /// First address in the process.
    pub start: Avma,
    /// Its first address in its file, or in the process if it is in no file.
    pub address: Svma,
    /// The time in the function itself, as a share of the time on a processor.
    pub own: Share,
    /// The time in the function and its callees, as a share of the time on a processor.
    pub total: Share,
    /// The time in the function and its callees, as a share of the time that threads waited for
    /// something other than work.
    pub waiting: Share,
    /// The time in the function and its callees, as a share of the time that threads waited for
    /// work.
    pub for_work: f64,
    /// The rate of waits in the function and in services that it calls, per second.
    pub waits_per_second: f64,
    /// The share of [`Shares::time`] that is attributed to it.
    pub weight: f64,
    /// The time in generated code that it calls, as a share of the time on a processor. It counts
    /// for the nearest caller that can be measured.
    pub generated: f64,
}

/// The distribution of a process's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// The means of sampling.
    pub seeing: Seeing,
    /// The duration of sampling.
    pub observed: Duration,
    /// Samples on a processor.
    pub on: u64,
    /// Waits that were sampled.
    pub off: u64,
    /// The CPU time of its threads.
    pub cpu: Duration,
    /// The time that active threads waited for a lock, a file, or an answer.
    pub waited: Duration,
    /// The estimated time that active threads waited for work.
    pub for_work: Duration,
    /// The denominator for the ranking of functions, in nanoseconds. Waiting for work does not
    /// count.
    pub time: f64,
    /// The share of samples with a complete stack.
    pub whole: f64,
    /// The share of samples whose callers were dropped for lack of room.
    pub folded: f64,
    /// The number of records lost to full rings.
    pub lost: u64,
    /// The time since the last sample or switch if the process runs. 0 if it is idle.
    pub stale: Duration,
    /// The number of threads that did not run.
    pub idle: usize,
    /// The number of threads that ran but were not sampled.
    pub unseen: usize,
    /// The heaviest functions first, by the time attributed to each: its own, the time of services
    /// it calls, or the time spent in it as a service. Functions that only call expensive ones are
    /// absent.
    pub functions: Vec<Function>,
}

/// Two-sided 95 % quantile of the normal distribution.
const CONFIDENCE: f64 = 1.96;

/// The sums over a function's samples. Times are in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Part {
    own: Sum,
    total: Sum,
    waiting: Sum,
    for_work: f64,
    /// The time on a processor that is attributed to it.
    on: f64,
    /// The time of sampled waits for something other than work that is attributed to it.
    off: f64,
    /// The number of waits that are attributed to it.
    waits: f64,
    /// The time on a processor in generated code of which it is the nearest measurable caller.
    generated: f64,
}

/// A sum of estimates, and the sum of their squares.
#[derive(Clone, Copy, Default)]
struct Sum {
    all: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, all: f64, squares: f64) {
        self.all += all;
        self.squares += squares;
    }

    /// Its share of a sum that contains it, with the error of a ratio of two estimates.
    fn of(self, whole: Self) -> Share {
        if whole.all <= 0.0 {
            return Share::default();
        }
        let value = self.all / whole.all;
        let squares = (1.0 - 2.0 * value) * self.squares + value * value * whole.squares;
        let error = CONFIDENCE * squares.max(0.0).sqrt() / whole.all;
        // If all n samples agree, 3 of n may still differ (rule of three).
        let least = 3.0 * whole.squares / (whole.all * whole.all);
        Share {
            value,
            error: error.max(least).min(1.0),
        }
    }
}

/// The samples at each path, indexed by its number. `paths` is the number of paths.
pub(super) fn by_path(paths: usize, tally: &Tally) -> Vec<Seen> {
    let mut seen = vec![Seen::default(); paths];
    for (&path, of_path) in &tally.paths {
        seen[path as usize].add(of_path, Factors::ONE);
    }
    seen
}

/// The shares of the `most` heaviest functions in the time of all threads. `seen` has the samples
/// of each of `paths`. `spent` is the time of all threads, sampled or not. Fields that only the
/// sampler knows stay at their defaults.
pub(super) fn of(
    code: &Code,
    paths: &[Path],
    seen: &[Seen],
    spent: Spent,
    observed: Duration,
    most: usize,
) -> Shares {
    let (mut on, mut off, mut for_work) = (Sum::default(), Sum::default(), 0.0);
    let mut parts = vec![Part::default(); code.count()];
    // The path at which each function was last counted. Recursion counts once.
    let mut counted = vec![usize::MAX; code.count()];
    let (mut samples, mut whole, mut folded) = ((0, 0), 0, 0);
    let was_seen = |(_, (_, seen)): &(usize, (&Path, &Seen))| seen.on + seen.off > 0;
    for (index, (path, seen)) in paths.iter().zip(seen).enumerate().filter(was_seen) {
        samples = (samples.0 + seen.on, samples.1 + seen.off);
        on.add(seen.cpu, seen.cpu_squares);
        off.add(seen.waited, seen.squares);
        whole += if path.is_whole { seen.on + seen.off } else { 0 };
        folded += if path.is_folded {
            seen.on + seen.off
        } else {
            0
        };
        let charged = code.charged(path);
        for_work += seen.for_work;
        for &function in &path.functions {
            if std::mem::replace(&mut counted[function as usize], index) != index {
                let part = &mut parts[function as usize];
                part.total.add(seen.cpu, seen.cpu_squares);
                part.waiting.add(seen.waited, seen.squares);
                part.for_work += seen.for_work;
            }
        }
        if let Some(&first) = path.functions.first() {
            parts[first as usize].own.add(seen.cpu, seen.cpu_squares);
        }
        for &function in &charged.on {
            parts[function as usize].on += seen.cpu;
        }
        if let Some(function) = charged.native {
            parts[function as usize].generated += seen.cpu;
        }
        for &function in &charged.off {
            let part = &mut parts[function as usize];
            part.off += seen.waited;
            part.waits += seen.waits;
        }
    }
    // Scales the sampled waits to all waits.
    let sampled = off.all + for_work;
    let scale = if sampled > 0.0 {
        spent.waited / sampled
    } else {
        0.0
    };
    let all_time = (on.all + off.all * scale).max(1.0);
    let weight = |part: &Part| part.on.max(part.off * scale) / all_time;
    let mut heaviest: Vec<(FunctionId, &Part)> = (0..).zip(&parts).collect();
    heaviest.retain(|(_, part)| weight(part) > 0.0);
    let order = |part: &Part| {
        let (total, waiting) = (part.total.of(on).value, part.waiting.of(off).value);
        (weight(part), part.own.of(on).value, total.max(waiting))
    };
    heaviest.sort_by(|(_, a), (_, b)| {
        let (a, b) = (order(a), order(b));
        b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)
    });
    let function = |(id, part): (FunctionId, &Part)| {
        let seen = code.function(id);
        Function {
            id,
            name: seen.name.clone(),
            linkage: seen.linkage.clone(),
            module: seen.module,
            path: code.file(seen.module).to_owned(),
            file: code.shown(seen).to_owned(),
            is_own: seen.is_own,
            is_known: seen.is_known,
            start: seen.start,
            address: seen.address,
            own: part.own.of(on),
            total: part.total.of(on),
            waiting: part.waiting.of(off),
            for_work: part.for_work / for_work.max(1.0),
            waits_per_second: part.waits / observed.as_secs_f64().max(1e-9),
            weight: weight(part),
            is_built_in: seen.is_built_in,
            generated: part.generated / on.all.max(1.0),
        }
    };
    let nanoseconds = |ns: f64| Duration::from_nanos(ns as u64);
    let of_all = |n: u64| n as f64 / (samples.0 + samples.1).max(1) as f64;
    Shares {
        observed,
        on: samples.0,
        off: samples.1,
        time: all_time,
        cpu: nanoseconds(spent.cpu),
        waited: nanoseconds(spent.waited - for_work * scale),
        for_work: nanoseconds(for_work * scale),
        whole: of_all(whole),
        folded: of_all(folded),
        functions: heaviest.into_iter().take(most).map(function).collect(),
        ..Shares::default()
    }
}

/// The most callers to name per function.
const MOST_CALLERS: usize = 12;

/// The functions that a path's time is attributed to.
#[derive(Default)]
pub(super) struct Charged {
    /// The functions to which time on a processor is attributed.
    on: Vec<FunctionId>,
    /// The functions to which waiting is attributed.
    off: Vec<FunctionId>,
    /// The index on the path of the first function in `off`.
    pub(super) at: usize,
    /// As [`Code::native`].
    native: Option<FunctionId>,
}

impl Code {
    /// The functions to which time on this path is attributed. None for an empty path.
    ///
    /// If the innermost function is a service, waiting goes to the service function that was
    /// called, and to its caller. Time on a processor also goes to the innermost function.
    /// Otherwise, or if all functions are services, both go to the innermost function. If that is
    /// generated code, time on a processor also goes to `native`.
    pub(super) fn charged(&self, path: &Path) -> Charged {
        let all = &path.functions;
        let Some(&innermost) = all.first() else {
            return Charged::default();
        };
        let called = all.iter().position(|&f| !self.function(f).serves);
        let (on, off) = match called {
            Some(0) => (vec![innermost], vec![innermost]),
            // All functions up to the root are services. The thread does the service's own work.
            None => (vec![innermost], vec![innermost]),
            Some(caller) => {
                let (entry, caller) = (all[caller - 1], all[caller]);
                let mut on = vec![innermost, entry, caller];
                on.dedup();
                (on, vec![entry, caller])
            }
        };
        let native = self.native(all);
        let mut on = on;
        on.extend(native.filter(|native| !on.contains(native)));
        Charged {
            on,
            off,
            at: called.unwrap_or(0).saturating_sub(1),
            native,
        }
    }

    /// The nearest caller in a file if the innermost function of a path is generated code. `None`
    /// if it is not, or if there is no such caller.
    fn native(&self, path: &[FunctionId]) -> Option<FunctionId> {
        let is_generated = |&&id: &&FunctionId| {
            let function = self.function(id);
            function.module.is_none() && !function.is_own || function.is_built_in
        };
        let count = path.iter().take_while(is_generated).count();
        let outer = path.get(count..).filter(|_| count > 0)?;
        let of_file = |id: &&FunctionId| {
            let function = self.function(**id);
            function.module.is_some() && function.is_known && !function.is_built_in
        };
        outer.iter().find(of_file).copied()
    }

    /// The names of the callers on the heaviest path to a function, the nearest first, at most
    /// [`MOST_CALLERS`]. A final entry marks an incomplete stack.
    pub(super) fn callers(&self, id: FunctionId, paths: &[Path], seen: &[Seen]) -> Vec<String> {
        // Callers that wait for work count only if there are no others.
        let of_interest = paths
            .iter()
            .zip(seen)
            .filter(|(path, _)| path.functions.contains(&id));
        let is_idle = of_interest
            .map(|(_, seen)| seen.cpu + seen.waited)
            .sum::<f64>()
            <= 0.0;
        let weight = |seen: &Seen| {
            if is_idle {
                seen.for_work
            } else {
                seen.cpu + seen.waited
            }
        };
        let paths = paths.iter().zip(seen).filter(|(_, s)| weight(s) > 0.0);
        let mut ways: Vec<(&[FunctionId], f64, bool)> = Vec::new();
        for (path, seen) in paths {
            let at = path.functions.iter().rposition(|&f| f == id);
            if let Some(outer) = at.and_then(|at| path.functions.get(at + 1..)) {
                ways.push((outer, weight(seen), path.is_whole));
            }
        }
        let mut callers = Vec::new();
        while callers.len() < MOST_CALLERS {
            let depth = callers.len();
            let mut by_next: HashMap<Option<FunctionId>, f64> = HashMap::new();
            for (way, weight, _) in &ways {
                *by_next.entry(way.get(depth).copied()).or_default() += weight;
            }
            let heaviest = by_next
                .into_iter()
                .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            let Some((Some(next), _)) = heaviest else {
                let ends = ways.iter().filter(|(way, ..)| way.len() == depth);
                let cut = |&(_, weight, is_whole): &(_, f64, bool)| {
                    if is_whole { -weight } else { weight }
                };
                if ends.map(cut).sum::<f64>() > 0.0 {
                    callers.push(UNKNOWN_CALLERS.to_owned());
                }
                break;
            };
            ways.retain(|(way, ..)| way.get(depth) == Some(&next));
            callers.push(self.function(next).name.clone());
        }
        callers
    }
}
