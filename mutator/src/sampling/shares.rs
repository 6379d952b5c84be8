//! From samples to shares of the time: of each function on a processor and off it, with what the estimate may be off by.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use patcher::{Avma, Svma};

use super::code::{Code, FunctionId, Path};
use super::services::is_idle;
use super::thread::{Seen, ThreadTime};

/// An estimated share, of 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The share.
    pub value: f64,
    /// What it may be off by, either way, in 95 of 100 cases.
    pub error: f64,
}

/// Where the time of a function goes, or of what it calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Demangled; `module+0xADDR` where it has no name.
    pub name: String,
    /// As the linker knows it; empty where it has none.
    pub linkage: String,
    /// Index of its module; `None` for code that is in no file.
    pub module: Option<usize>,
    /// What a user calls the module; empty where there is none.
    pub file: String,
    /// First address in the process.
    pub start: Avma,
    /// The same in its file.
    pub address: Svma,
    /// In itself, of the time on a processor.
    pub own: Share,
    /// In itself and in what it calls, of the time on a processor.
    pub total: Share,
    /// In itself and in what it calls, of the time off it.
    pub waiting: Share,
    /// Waits in it that are its own or of a service that it calls, a second.
    pub waits_per_second: f64,
    /// How much of all time of threads that ran can be put down to it: its own, that of services that it calls, or that is
    /// spent in it as a service. 0 for what only calls what costs.
    pub weight: f64,
    /// Its commonest callers, the nearest first.
    pub callers: Vec<String>,
}

/// Where the time of a process has gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// For how long it was looked at.
    pub observed: Duration,
    /// Samples on a processor.
    pub on: u64,
    /// Waits that were sampled.
    pub off: u64,
    /// CPU time of its threads, estimated.
    pub cpu: Duration,
    /// Time that those of its threads waited that ran at all.
    pub waited: Duration,
    /// Share of samples whose stack could be walked to its root.
    pub whole: f64,
    /// Records that found no room.
    pub lost: u64,
    /// Threads that did not run at all.
    pub idle: usize,
    /// Threads that could not be looked at.
    pub unseen: usize,
    /// By weight, the heaviest first.
    pub functions: Vec<Function>,
}

/// Two-sided 95 % of the normal distribution.
const CONFIDENCE: f64 = 1.96;

/// Waiting to be wanted counts for so much of what other waiting does.
const IDLENESS: f64 = 0.02;

/// What a function has of the samples.
#[derive(Clone, Copy, Default)]
struct Part {
    own: Sum,
    total: Sum,
    waiting: Sum,
    /// What is put down to it: on a processor, and waiting with and without what is idle.
    on: f64,
    off: f64,
    waits: f64,
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

/// The share of the time of all threads together that each function has.
pub(super) fn of(
    code: &Code,
    paths: &[Path],
    thread: &ThreadTime,
    observed: Duration,
    with_callers: usize,
) -> Shares {
    let mut seen: Vec<Seen> = vec![Seen::default(); paths.len()];
    for (&path, of_path) in &thread.paths {
        seen[path as usize].add(of_path);
    }
    let (mut on, mut off, mut weighed) = (Sum::default(), Sum::default(), 0.0);
    let mut parts: BTreeMap<FunctionId, Part> = BTreeMap::new();
    let mut whole = 0;
    for (path, seen) in paths.iter().zip(&seen) {
        // All samples of the clock stand for the same.
        let squares = seen.cpu * seen.cpu / seen.on.max(1) as f64;
        on.add(seen.cpu, squares);
        off.add(seen.waited, seen.squares);
        whole += if path.is_whole { seen.on + seen.off } else { 0 };
        let charged = code.charged(path);
        let loss = match charged.is_idle {
            true => IDLENESS,
            false => 1.0,
        };
        weighed += seen.waited * loss;
        let mut counted = Vec::new();
        for &function in &path.functions {
            // Recursion counts once.
            if !counted.contains(&function) {
                counted.push(function);
                let part = parts.entry(function).or_default();
                part.total.add(seen.cpu, squares);
                part.waiting.add(seen.waited, seen.squares);
            }
        }
        if let Some(&first) = path.functions.first() {
            parts.entry(first).or_default().own.add(seen.cpu, squares);
        }
        for &function in &charged.on {
            parts.entry(function).or_default().on += seen.cpu;
        }
        for &function in &charged.off {
            let part = parts.entry(function).or_default();
            part.off += seen.waited * loss;
            part.waits += seen.waits;
        }
    }
    let samples: (u64, u64) = seen
        .iter()
        .fold((0, 0), |(on, off), s| (on + s.on, off + s.off));
    let waited = thread.waited;
    // Of the waits that were sampled each stands for as many as there were.
    let scale = if off.all > 0.0 {
        waited as f64 / off.all
    } else {
        0.0
    };
    let all_time = on.all + weighed * scale;
    let mut functions: Vec<(FunctionId, Function)> = parts
        .into_iter()
        .map(|(id, part)| {
            let seen = code.function(id);
            let weight = part.on.max(part.off * scale) / all_time.max(1.0);
            let function = Function {
                name: seen.name.clone(),
                linkage: seen.linkage.clone(),
                module: seen.module,
                file: code.shown(seen.module).to_owned(),
                start: seen.start,
                address: seen.address,
                own: part.own.of(on),
                total: part.total.of(on),
                waiting: part.waiting.of(off),
                waits_per_second: part.waits / observed.as_secs_f64().max(1e-9),
                weight,
                callers: Vec::new(),
            };
            (id, function)
        })
        .collect();
    let by_weight = |f: &Function| (f.weight, f.own.value, f.total.value.max(f.waiting.value));
    functions.sort_by(|(_, a), (_, b)| {
        let (a, b) = (by_weight(a), by_weight(b));
        b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)
    });
    for (id, function) in functions.iter_mut().take(with_callers) {
        function.callers = code.callers(*id, paths, &seen);
    }
    Shares {
        observed,
        on: samples.0,
        off: samples.1,
        cpu: Duration::from_nanos(on.all as u64),
        waited: Duration::from_nanos(waited),
        whole: whole as f64 / (samples.0 + samples.1).max(1) as f64,
        functions: functions
            .into_iter()
            .map(|(_, function)| function)
            .collect(),
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
    pub(super) is_idle: bool,
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
        let inside = &all[..called.unwrap_or(all.len())];
        let is_idle = inside.iter().any(|&f| is_idle(&self.function(f).name));
        Charged {
            on,
            off,
            at: called.unwrap_or(0).saturating_sub(1),
            is_idle,
        }
    }

    /// The callers that most of a function's time comes by, the nearest first.
    fn callers(&self, id: FunctionId, paths: &[Path], seen: &[Seen]) -> Vec<String> {
        let outer = |path: &'_ Path| {
            let at = path.functions.iter().rposition(|&f| f == id)?;
            Some(path.functions[at + 1..].to_vec())
        };
        let weight = |seen: &Seen| seen.cpu + seen.waited;
        let mut ways: Vec<(Vec<FunctionId>, f64)> = paths
            .iter()
            .zip(seen)
            .filter_map(|(path, seen)| Some((outer(path)?, weight(seen))))
            .collect();
        let mut callers = Vec::new();
        while callers.len() < MOST_CALLERS {
            let depth = callers.len();
            let mut by_next: HashMap<Option<FunctionId>, f64> = HashMap::new();
            for (way, weight) in &ways {
                *by_next.entry(way.get(depth).copied()).or_default() += weight;
            }
            let heaviest = by_next.into_iter().max_by(|a, b| {
                a.1.partial_cmp(&b.1)
                    .unwrap_or(std::cmp::Ordering::Equal)
                    .then(b.0.cmp(&a.0))
            });
            let Some((Some(next), _)) = heaviest else {
                break;
            };
            ways.retain(|(way, _)| way.get(depth) == Some(&next));
            callers.push(self.function(next).name.clone());
        }
        callers
    }
}
