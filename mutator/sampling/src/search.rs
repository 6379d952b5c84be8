//! The search: decides which functions to measure next, until the costly paths are named.
//!
//! Samples select the first functions, and measurements decide. Each step measures a few functions.
//! Those that cost little or are called too often are dropped, and their time goes to their
//! callers. This module knows no process: its input is the observations, and its output is the next
//! step.

mod cost;
mod guess;
mod rows;
mod stack;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use patcher::Avma;

pub use cost::Cost;
pub use rows::{Row, rows};
pub use stack::{Measured, MeasuredPath, Site, Stack, Window};

use guess::{Known, guess};

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The minimum share of CPU time or of waiting. Anything with a smaller share is left out.
    pub min_share: f64,
    /// The explained share of both at which the search ends.
    pub explain: f64,
    /// The maximum number of functions that are measured at a time.
    pub most: usize,
    /// The limit of the overhead, as a share of the CPU time.
    pub max_overhead: f64,
    /// The time to wait for calls that do not return, in ns.
    pub patience: u64,
}

/// The CPU time of measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// As a share of the CPU time of the process.
    pub share: f64,
    /// As a share of one processor.
    pub processor: f64,
}

impl Bounds {
    /// True if the overhead exceeds `times` its limit. The limit is a share of the CPU time, but at
    /// least a hundredth of a processor, so that a mostly idle process can be measured.
    pub fn is_above(&self, overhead: Overhead, times: f64) -> bool {
        const FLOOR: f64 = 0.01;
        overhead.share > times * self.max_overhead && overhead.processor > times * FLOOR
    }

    /// [`Bounds::is_above`] for the overhead of a window.
    pub fn is_too_much(&self, window: &Window, times: f64) -> bool {
        let overhead = Overhead {
            share: window.overhead,
            processor: window.processor,
        };
        self.is_above(overhead, times)
    }
}

/// Why a function is no longer measured, or cannot be.
#[derive(Clone, Debug, PartialEq)]
pub enum Dropped {
    /// Measuring it had too much overhead.
    Costly {
        /// Calls per second.
        rate: f64,
        /// Time per call without measured functions that it calls, in ns.
        each: f64,
        /// The overhead of all measuring, as a share of the CPU time.
        overhead: f64,
    },
    /// Its share is too small. This is the share.
    Small(f64),
    /// No call of it both began and returned while it was measured.
    Unreturned,
    /// It cannot be instrumented.
    Refused(String),
    /// Its programs have ended.
    Ended,
}

impl Dropped {
    /// True if the callers can explain the time that was attributed to it.
    fn goes_to_callers(&self) -> bool {
        match self {
            // Its callers began before it, and have not returned either.
            Self::Unreturned => false,
            // Its callers have ended, too.
            Self::Ended => false,
            Self::Costly { .. } | Self::Small(_) | Self::Refused(_) => true,
        }
    }
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make the changes and measure again.
    Look,
    /// Continue to measure the same functions: calls have begun that have not returned.
    LookOn,
    /// Stop: this is the result.
    End,
}

/// A step of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Functions to add, with the share that each may have by samples.
    pub add: Vec<(Avma, Cost)>,
    /// Functions to drop, with the reasons.
    pub drop: Vec<(Avma, Dropped)>,
    /// The exact share that the measured functions explain.
    pub explained: Cost,
    /// True if that share is enough.
    pub is_enough: bool,
    /// The next action.
    pub next: Next,
}

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    bounds: Bounds,
    measured: BTreeSet<Avma>,
    dropped: BTreeMap<Avma, Dropped>,
    /// The call paths of functions that were dropped because measuring them had too much overhead.
    paths: BTreeMap<Avma, Vec<MeasuredPath>>,
    /// The functions to search within; empty if the search is everywhere.
    within: BTreeSet<Avma>,
}

impl Search {
    /// A search in everything that a process does.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            measured: BTreeSet::new(),
            dropped: BTreeMap::new(),
            paths: BTreeMap::new(),
            within: BTreeSet::new(),
        }
    }

    /// A search within some functions, which are measured already.
    pub fn within(bounds: Bounds, functions: impl IntoIterator<Item = Avma>) -> Self {
        let within: BTreeSet<Avma> = functions.into_iter().collect();
        Self {
            measured: within.clone(),
            within,
            ..Self::new(bounds)
        }
    }

    /// True if it searches everywhere, and not only within named functions.
    pub fn is_everywhere(&self) -> bool {
        self.within.is_empty()
    }

    /// The functions that are measured, by their first addresses.
    pub fn measured(&self) -> &BTreeSet<Avma> {
        &self.measured
    }

    /// The functions that were dropped, by their first addresses, and why.
    pub fn dropped(&self) -> &BTreeMap<Avma, Dropped> {
        &self.dropped
    }

    /// Drops a function that was to be measured and cannot be. It is not chosen again.
    pub fn refuse(&mut self, function: Avma, why: Dropped) {
        self.leave(function, why);
    }

    fn leave(&mut self, function: Avma, why: Dropped) {
        self.measured.remove(&function);
        self.dropped.insert(function, why);
    }

    /// The first step, from the samples.
    pub fn begin(&mut self, sampled: &[Stack]) -> Step {
        self.next(sampled, &Window::default())
    }

    /// The next step, from all samples and from the measurements since the last change. The search
    /// counts the functions in [`Step::add`] as measured and those in [`Step::drop`] as dropped.
    pub fn next(&mut self, sampled: &[Stack], window: &Window) -> Step {
        let whole = self.whole(window);
        let explained = self.explained(window);
        let enough = Cost::parts(whole, self.bounds.min_share) * self.bounds.explain;
        // Within functions everything is explained from the beginning on. Search among their
        // callees all the same.
        let is_enough = self.within.is_empty() && window.ns > 0 && explained.reaches(enough);
        let mut drop = self.too_costly(window);
        if drop.is_empty() {
            let is_due = || !self.due(sampled, window, whole).is_empty();
            let next = match window.ns < self.bounds.patience {
                _ if is_enough => Some(Next::End),
                true if is_due() => Some(Next::LookOn),
                _ => None,
            };
            if let Some(next) = next {
                return Step {
                    add: Vec::new(),
                    drop,
                    explained,
                    is_enough,
                    next,
                };
            }
            drop = self.too_small(window, whole);
        }
        for (function, why) in &drop {
            self.leave(*function, why.clone());
        }
        let add = self.instead(sampled);
        let is_unchanged = add.is_empty() && drop.is_empty();
        let next = if is_unchanged || self.measured.is_empty() {
            Next::End
        } else {
            Next::Look
        };
        Step {
            add,
            drop,
            explained,
            is_enough,
            next,
        }
    }

    /// Chooses functions to measure in place of functions that were refused, with the share that
    /// each may have by samples. The search counts them as measured.
    pub fn instead(&mut self, sampled: &[Stack]) -> Vec<(Avma, Cost)> {
        let add = self.wanted(sampled);
        let added = add.iter().map(|(function, _)| *function);
        self.measured.extend(added.clone());
        // A caller of a function that is no longer measured takes that function's place in
        // `within`.
        let callers: Vec<Avma> = added.filter(|f| self.calls_within(sampled, *f)).collect();
        self.within.extend(callers);
        add
    }

    /// True for a caller of a function in `within` that is no longer measured.
    fn calls_within(&self, sampled: &[Stack], function: Avma) -> bool {
        let mut stacks = sampled
            .iter()
            .filter_map(|stack| self.callers_within(stack));
        let mut paths = self.paths.iter().filter(|(f, _)| self.within.contains(f));
        let calls = |path: &MeasuredPath| path.callers.iter().any(|s| s.function == function);
        stacks.any(|callers| callers.contains(&function))
            || paths.any(|(_, paths)| paths.iter().any(calls))
    }

    /// Functions that may explain some of the time and are not measured, with the share that each
    /// may have by samples. The largest share comes first.
    pub fn left(&self, sampled: &[Stack]) -> Vec<(Avma, Cost)> {
        let is_left = |(function, share): &(Avma, Cost)| {
            !self.measured.contains(function) && share.largest() >= self.bounds.min_share
        };
        let mut left: Vec<_> = self.guess(sampled).into_iter().filter(is_left).collect();
        left.sort_by(|a, b| b.1.largest().total_cmp(&a.1.largest()));
        left
    }

    /// The time to explain. In a search within functions, that is their time.
    fn whole(&self, window: &Window) -> Cost {
        if self.within.is_empty() {
            window.whole
        } else {
            self.within_those(window).map(|path| path.cost).sum()
        }
    }

    /// The measured paths that belong to this search.
    fn within_those<'w>(&self, window: &'w Window) -> impl Iterator<Item = &'w MeasuredPath> {
        window
            .measured
            .iter()
            .flat_map(|m| m.paths.iter().map(move |path| (m.function, path)))
            .filter(|(function, path)| self.is_within(*function, path))
            .map(|(_, path)| path)
    }

    /// True if a path of `function` belongs to this search.
    pub fn is_within(&self, function: Avma, path: &MeasuredPath) -> bool {
        let mut callers = path.callers.iter();
        self.within.is_empty()
            || self.within.contains(&function)
            || callers.any(|site| self.within.contains(&site.function))
    }

    /// The share of the time that the measured functions explain, at most 1 of each part.
    pub fn explained(&self, window: &Window) -> Cost {
        let whole = self.whole(window);
        let all: Cost = self.within_those(window).map(|path| path.cost).sum();
        let share = all.share_of(whole, self.bounds.min_share);
        Cost {
            cpu: share.cpu.min(1.0),
            off: share.off.min(1.0),
        }
    }

    /// The functions with the most overhead for their cost, until the overhead of the rest is below
    /// its limit.
    fn too_costly(&mut self, window: &Window) -> Vec<(Avma, Dropped)> {
        let calls = |m: &&Measured| m.calls();
        let all: u64 = window.measured.iter().map(|m| calls(&m)).sum();
        let mut left: Vec<&Measured> = window.measured.iter().filter(|m| calls(m) > 0).collect();
        let in_itself = |m: &&Measured| m.cost().sum() / m.calls() as f64;
        let burden = |m: &&Measured| m.calls() as f64 / in_itself(m).max(1.0);
        left.sort_by(|a, b| burden(a).total_cmp(&burden(b)));
        let mut drop = Vec::new();
        // The remaining part of the overhead.
        let mut part = 1.0;
        let is_too_much = |part: f64| {
            let rest = Overhead {
                share: part * window.overhead,
                processor: part * window.processor,
            };
            self.bounds.is_above(rest, 1.0)
        };
        while is_too_much(part)
            && let Some(worst) = left.pop()
        {
            part -= worst.calls() as f64 / all as f64;
            let why = Dropped::Costly {
                rate: worst.calls() as f64 * 1e9 / window.ns.max(1) as f64,
                each: in_itself(&worst),
                overhead: window.overhead,
            };
            if worst.cost().sum() > 0.0 {
                self.paths.insert(worst.function, worst.paths.clone());
            }
            drop.push((worst.function, why));
        }
        drop
    }

    /// Functions whose measured time is much less than their sampled time: their calls take longer
    /// than the window.
    fn due(&self, sampled: &[Stack], window: &Window, whole: Cost) -> Vec<Avma> {
        let guessed = self.guess(sampled);
        let is_due = |function: &&Avma| {
            let measured = window.measured.iter().find(|m| m.function == **function);
            if measured.is_some_and(|m| m.calls() == 0) && self.within.contains(function) {
                return true;
            }
            let exact = measured.map_or(Cost::default(), Measured::cost);
            let exact = exact.share_of(whole, self.bounds.min_share);
            let sampled = guessed.get(function).copied().unwrap_or_default();
            let is_missed = |sampled: f64, exact: f64| {
                sampled >= self.bounds.min_share && exact < sampled / 2.0
            };
            is_missed(sampled.cpu, exact.cpu) || is_missed(sampled.off, exact.off)
        };
        self.measured.iter().filter(is_due).copied().collect()
    }

    /// Functions with too small a share, or without a call that returned. Functions in `within`
    /// stay.
    fn too_small(&self, window: &Window, whole: Cost) -> Vec<(Avma, Dropped)> {
        let mut drop = Vec::new();
        for measured in &window.measured {
            let function = measured.function;
            if !self.measured.contains(&function) || self.within.contains(&function) {
                continue;
            }
            let share = measured.cost().share_of(whole, self.bounds.min_share);
            let why = match measured.calls() {
                0 => Dropped::Unreturned,
                _ if share.largest() < self.bounds.min_share => Dropped::Small(share.largest()),
                _ => continue,
            };
            drop.push((function, why));
        }
        drop
    }

    /// Functions that may explain most of the rest, as many as there is room for.
    fn wanted(&self, sampled: &[Stack]) -> Vec<(Avma, Cost)> {
        let guessed = self.guess(sampled);
        // Samples are somewhat inaccurate, so choose a little more than there is to explain.
        let enough = self.bounds.explain + (1.0 - self.bounds.explain) / 2.0;
        let (known, mut others): (Vec<_>, Vec<_>) = guessed
            .into_iter()
            .partition(|(f, _)| self.measured.contains(f) || self.dropped.contains_key(f));
        let known = known.into_iter().filter(|(f, _)| self.measured.contains(f));
        let mut covered: Cost = known.map(|(_, share)| share).sum();
        others.sort_by(|a, b| b.1.largest().total_cmp(&a.1.largest()));
        let room = self.bounds.most.saturating_sub(self.measured.len());
        let mut wanted = Vec::new();
        for (function, share) in others {
            let is_of_use =
                |share: f64, covered: f64| share >= self.bounds.min_share && covered < enough;
            let is_wanted = is_of_use(share.cpu, covered.cpu) || is_of_use(share.off, covered.off);
            if is_wanted && wanted.len() < room {
                covered += share;
                wanted.push((function, share));
            }
        }
        wanted
    }

    /// The share of the sampled time that each function may explain.
    fn guess(&self, sampled: &[Stack]) -> BTreeMap<Avma, Cost> {
        let within = sampled.iter().filter_map(|stack| self.part_within(stack));
        let mut within: Vec<Stack> = within.collect();
        if within.is_empty() {
            // Measured paths are better than nothing.
            let paths = self.paths.iter();
            let stack = |(function, path): (&Avma, &MeasuredPath)| path.stack(*function, path.cost);
            within = paths
                .flat_map(|(function, paths)| paths.iter().map(move |path| (function, path)))
                .map(stack)
                .collect();
        }
        let whole = within.iter().map(|stack| stack.cost).sum();
        let passed = self.dropped.iter().filter(|(_, why)| why.goes_to_callers());
        let passed: BTreeSet<Avma> = passed.map(|(function, _)| *function).collect();
        let known = Known {
            min_share: self.bounds.min_share,
            measured: &self.measured,
            passed: &passed,
            paths: &self.paths,
        };
        guess(&within, whole, &known)
    }

    /// The callers of the outermost function on a stack that is in `within`, if that function is no
    /// longer measured. `None` otherwise.
    fn callers_within<'s>(&self, stack: &'s Stack) -> Option<&'s [Avma]> {
        let is_in = |f: &Avma| self.within.contains(f);
        let outermost = stack.functions.iter().rposition(is_in)?;
        let is_left = self.dropped.contains_key(&stack.functions[outermost]);
        is_left.then(|| &stack.functions[outermost + 1..])
    }

    /// The part of a stack that belongs to this search: the outermost function in `within`, and its
    /// callees. If that function is no longer measured, its callers belong to it too. `None` if no
    /// function of the stack is in `within`.
    fn part_within(&self, stack: &Stack) -> Option<Stack> {
        if self.within.is_empty() {
            return Some(stack.clone());
        }
        let is_in = |f: &Avma| self.within.contains(f);
        let outermost = stack.functions.iter().rposition(is_in)?;
        let callers = self.callers_within(stack).map_or(0, <[Avma]>::len);
        Some(Stack {
            functions: stack.functions[..=outermost + callers].to_vec(),
            charged: stack.charged.min(outermost),
            cost: stack.cost,
        })
    }
}
