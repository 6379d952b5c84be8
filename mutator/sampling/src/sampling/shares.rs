//! From samples to shares of the time: of each function on a processor and off it, with what the estimate may be off by.

use std::collections::HashMap;
use std::time::Duration;

use patcher::{Avma, Svma};

use ipath_profile::UNKNOWN_CALLERS;

use super::code::{Code, FunctionId, Path};
use super::event::Seeing;
use super::thread::{Factors, Seen, Spent, Tally};

/// An estimated share, of 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The share.
    pub value: f64,
    /// What it may be off by, either way, in 95 of 100 cases.
    pub error: f64,
}

/// Where the time of a function goes, or of what it calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its number.
    pub(super) id: FunctionId,
    /// Demangled; `module+0xADDR` where it has no name.
    pub name: String,
    /// As the linker knows it; empty where it has none.
    pub linkage: String,
    /// Index of its module; `None` for code that is in no file.
    pub module: Option<usize>,
    /// The path of the module; empty where there is none.
    pub path: String,
    /// What a user calls the module; `[jit]` where there is none, `[ipath]` for what ipath has put there.
    pub file: String,
    /// True if ipath has put it there.
    pub is_own: bool,
    /// False of code of a file in which no function is known.
    pub is_known: bool,
    /// True for a part of a compiler's runtime that generated code calls all the time: measuring its
    /// calls would take most of the time.
    pub is_built_in: bool,
    /// First address in the process.
    pub start: Avma,
    /// The same in its file.
    pub address: Svma,
    /// In itself, of the time on a processor.
    pub own: Share,
    /// In itself and in what it calls, of the time on a processor.
    pub total: Share,
    /// In itself and in its callees, of the time that threads waited for something other than work.
    pub waiting: Share,
    /// In itself and in its callees, of the time that threads waited for work.
    pub for_work: f64,
    /// Waits in it that are its own or of a service that it calls, a second.
    pub waits_per_second: f64,
    /// The share of [`Shares::time`] that can be put down to it.
    pub weight: f64,
    /// The share of the time on a processor in generated code that it calls, if it is the nearest function
    /// that can be measured.
    pub generated: f64,
}

/// Where the time of a process has gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// How it was looked at.
    pub seeing: Seeing,
    /// For how long it was looked at.
    pub observed: Duration,
    /// Samples on a processor.
    pub on: u64,
    /// Waits that were sampled.
    pub off: u64,
    /// CPU time of its threads.
    pub cpu: Duration,
    /// Time in which threads that ran waited for a lock, a file, an answer.
    pub waited: Duration,
    /// Time in which these threads waited for work, estimated.
    pub for_work: Duration,
    /// The time of its threads that functions are ranked by, ns: waiting for work does not count.
    pub time: f64,
    /// Share of samples whose stack could be walked to its root.
    pub whole: f64,
    /// Share of samples whose callers there was no room for.
    pub folded: f64,
    /// Records that found no room.
    pub lost: u64,
    /// The time without samples while the process runs.
    pub stale: Duration,
    /// Threads that did not run at all.
    pub idle: usize,
    /// Threads that ran and were not looked at.
    pub unseen: usize,
    /// The heaviest first, by how much of all time of threads that ran can be put down to each: its own, that of services
    /// that it calls, or that is spent in it as a service. What only calls what costs is not among them.
    pub functions: Vec<Function>,
}

/// Two-sided 95 % of the normal distribution.
const CONFIDENCE: f64 = 1.96;

/// What a function has of the samples.
#[derive(Clone, Copy, Default)]
struct Part {
    own: Sum,
    total: Sum,
    waiting: Sum,
    for_work: f64,
    /// The time that is put down to it: on a processor, and waiting for something other than work.
    on: f64,
    off: f64,
    waits: f64,
    /// The time on a processor in generated code that it is the nearest measurable caller of.
    generated: f64,
}

/// A sum of estimates, with that of their squares.
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

    /// Its share of another sum that it is part of, with the error of a ratio of two estimates.
    fn of(self, whole: Self) -> Share {
        if whole.all <= 0.0 {
            return Share::default();
        }
        let value = self.all / whole.all;
        let squares = (1.0 - 2.0 * value) * self.squares + value * value * whole.squares;
        let error = CONFIDENCE * squares.max(0.0).sqrt() / whole.all;
        // Where all samples agree it may still be another one in 3 of so many as there are (rule of three).
        let least = 3.0 * whole.squares / (whole.all * whole.all);
        Share {
            value,
            error: error.max(least).min(1.0),
        }
    }
}

/// What has been seen at each path, by number.
pub(super) fn by_path(paths: usize, tally: &Tally) -> Vec<Seen> {
    let mut seen = vec![Seen::default(); paths];
    for (&path, of_path) in &tally.paths {
        seen[path as usize].add(of_path, Factors::ONE);
    }
    seen
}

/// The shares of the `most` heaviest functions in the time of all threads. `spent` is that time,
/// sampled or not.
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
    // The path at which each was counted last: recursion counts once.
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
    // Of the waits that were sampled each stands for as many as there were.
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

/// Callers that are named of each.
const MOST_CALLERS: usize = 12;

/// To what the time of a path is put down.
#[derive(Default)]
pub(super) struct Charged {
    on: Vec<FunctionId>,
    off: Vec<FunctionId>,
    /// Index of the first of them on the path.
    pub(super) at: usize,
    /// The nearest function that can be measured, if the innermost one is generated code.
    native: Option<FunctionId>,
}

impl Code {
    /// The innermost function; where that serves, the one through which the service was called, and who called it.
    pub(super) fn charged(&self, path: &Path) -> Charged {
        let all = &path.functions;
        let Some(&innermost) = all.first() else {
            return Charged::default();
        };
        let called = all.iter().position(|&f| !self.function(f).serves);
        let (on, off) = match called {
            Some(0) => (vec![innermost], vec![innermost]),
            // Serves from the innermost to the root: what a thread does that is the service's own.
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

    /// The nearest function of a path that can be measured, if the innermost one is generated code.
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

    /// The callers that most of a function's time comes by, the nearest first; at their end that there are unknown ones where
    /// the stack could not be walked on.
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
