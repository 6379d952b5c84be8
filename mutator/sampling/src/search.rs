//! Refinement by itself: which functions to measure next, until the paths that cost are named.
//!
//! Samples say where to begin, measuring decides. In each step a few functions are measured; those that cost little or are
//! called too often go, and what they stood for goes to their callers. No process is known here: what was seen comes in, what
//! to do next goes out.

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
    /// What has a smaller share of CPU time and of waiting is left out.
    pub min_share: f64,
    /// When so much of both is explained, it is enough.
    pub explain: f64,
    /// Most functions at once.
    pub most: usize,
    /// What measuring may take, as a share of the CPU time.
    pub max_overhead: f64,
    /// For how long calls that do not return are waited for, ns.
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
    /// True if the overhead exceeds `times` its limit. The limit is a share of the CPU time, but at least
    /// a hundredth of a processor, so that a mostly idle process can be measured.
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

/// Why a function is not measured any more, or cannot be.
#[derive(Clone, Debug, PartialEq)]
pub enum Dropped {
    /// Measuring it took too much.
    Costly {
        /// Calls a second.
        rate: f64,
        /// Time of a call in itself, ns.
        each: f64,
        /// What all measuring took, as a share of the CPU time.
        overhead: f64,
    },
    /// It has this share.
    Small(f64),
    /// None of its calls began and returned while it was measured.
    Unreturned,
    /// It cannot be instrumented.
    Refused(String),
    /// Its programs have ended.
    Ended,
}

impl Dropped {
    /// True where the time that it stood for can be found with its callers.
    fn goes_to_callers(&self) -> bool {
        match self {
            // They have been called before it, and have not returned either.
            Self::Unreturned => false,
            // They have ended, too.
            Self::Ended => false,
            Self::Costly { .. } | Self::Small(_) | Self::Refused(_) => true,
        }
    }
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To make the changes and look anew.
    Look,
    /// To go on looking at the same functions: calls have begun that have not returned.
    LookOn,
    /// Nothing: this is the result.
    End,
}

/// A step of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Functions to be measured, with the share that each may have by samples.
    pub add: Vec<(Avma, Cost)>,
    /// Functions to be measured no longer.
    pub drop: Vec<(Avma, Dropped)>,
    /// How much those that are measured explain, exactly.
    pub explained: Cost,
    /// True if that is enough.
    pub is_enough: bool,
    /// What is next.
    pub next: Next,
}

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    bounds: Bounds,
    measured: BTreeSet<Avma>,
    dropped: BTreeMap<Avma, Dropped>,
    /// By which paths those were called that were measured.
    paths: BTreeMap<Avma, Vec<MeasuredPath>>,
    /// Within which functions it looks; everywhere where there is none.
    within: BTreeSet<Avma>,
}

impl Search {
    /// A search among all that a process does.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            measured: BTreeSet::new(),
            dropped: BTreeMap::new(),
            paths: BTreeMap::new(),
            within: BTreeSet::new(),
        }
    }

    /// A search among what some functions do, which are measured already.
    pub fn within(bounds: Bounds, functions: impl IntoIterator<Item = Avma>) -> Self {
        let within: BTreeSet<Avma> = functions.into_iter().collect();
        Self {
            measured: within.clone(),
            within,
            ..Self::new(bounds)
        }
    }

    /// True if it looks everywhere, not only within functions that were named.
    pub fn is_everywhere(&self) -> bool {
        self.within.is_empty()
    }

    /// The functions that are measured.
    pub fn measured(&self) -> &BTreeSet<Avma> {
        &self.measured
    }

    /// Those that are not, and why.
    pub fn dropped(&self) -> &BTreeMap<Avma, Dropped> {
        &self.dropped
    }

    /// A function that was to be measured cannot be.
    pub fn refuse(&mut self, function: Avma, why: Dropped) {
        self.leave(function, why);
    }

    fn leave(&mut self, function: Avma, why: Dropped) {
        self.measured.remove(&function);
        self.dropped.insert(function, why);
    }

    /// What to measure first, by what has been sampled.
    pub fn begin(&mut self, sampled: &[Stack]) -> Step {
        self.next(sampled, &Window::default())
    }

    /// What to do next, by all that has been sampled and what was measured since the last change.
    pub fn next(&mut self, sampled: &[Stack], window: &Window) -> Step {
        let whole = self.whole(window);
        let explained = self.explained(window);
        let enough = Cost::parts(whole, self.bounds.min_share) * self.bounds.explain;
        // Within functions all is explained from the beginning on, and what they call is looked for all the same.
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

    /// What to measure in the place of functions that were refused.
    pub fn instead(&mut self, sampled: &[Stack]) -> Vec<(Avma, Cost)> {
        let add = self.wanted(sampled);
        let added = add.iter().map(|(function, _)| *function);
        self.measured.extend(added.clone());
        // Who calls what is not measured any more is looked at in its place.
        let callers: Vec<Avma> = added.filter(|f| self.calls_within(sampled, *f)).collect();
        self.within.extend(callers);
        add
    }

    /// True for a function that calls one of those that it looks within, where that is not measured any more.
    fn calls_within(&self, sampled: &[Stack], function: Avma) -> bool {
        let mut stacks = sampled
            .iter()
            .filter_map(|stack| self.callers_within(stack));
        let mut paths = self.paths.iter().filter(|(f, _)| self.within.contains(f));
        let calls = |path: &MeasuredPath| path.callers.iter().any(|s| s.function == function);
        stacks.any(|callers| callers.contains(&function))
            || paths.any(|(_, paths)| paths.iter().any(calls))
    }

    /// Functions that may explain some of the time and are not measured, with the share that each may have by samples, the
    /// largest first.
    pub fn left(&self, sampled: &[Stack]) -> Vec<(Avma, Cost)> {
        let is_left = |(function, share): &(Avma, Cost)| {
            !self.measured.contains(function) && share.largest() >= self.bounds.min_share
        };
        let mut left: Vec<_> = self.guess(sampled).into_iter().filter(is_left).collect();
        left.sort_by(|a, b| b.1.largest().total_cmp(&a.1.largest()));
        left
    }

    /// What is to be explained: of a search within functions the time that those have.
    fn whole(&self, window: &Window) -> Cost {
        if self.within.is_empty() {
            window.whole
        } else {
            self.within_those(window).map(|path| path.cost).sum()
        }
    }

    /// The paths of this search.
    fn within_those<'w>(&self, window: &'w Window) -> impl Iterator<Item = &'w MeasuredPath> {
        window
            .measured
            .iter()
            .flat_map(|m| m.paths.iter().map(move |path| (m.function, path)))
            .filter(|(function, path)| self.is_within(*function, path))
            .map(|(_, path)| path)
    }

    /// True for a path of this search.
    pub fn is_within(&self, function: Avma, path: &MeasuredPath) -> bool {
        let mut callers = path.callers.iter();
        self.within.is_empty()
            || self.within.contains(&function)
            || callers.any(|site| self.within.contains(&site.function))
    }

    /// The share of the time that the measured functions explain.
    pub fn explained(&self, window: &Window) -> Cost {
        let whole = self.whole(window);
        let all: Cost = self.within_those(window).map(|path| path.cost).sum();
        let share = all.share_of(whole, self.bounds.min_share);
        Cost {
            cpu: share.cpu.min(1.0),
            off: share.off.min(1.0),
        }
    }

    /// Those that take most to measure for what they cost, until the others do not take too much.
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

    /// Functions of which much less has been measured than was sampled: their calls take longer than was looked.
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

    /// Functions that cost next to nothing. Those that were named stay.
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
        // Samples are off a little: somewhat more than is to be explained.
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

    /// The share of what was sampled that each function may explain.
    fn guess(&self, sampled: &[Stack]) -> BTreeMap<Avma, Cost> {
        let within = sampled.iter().filter_map(|stack| self.part_within(stack));
        let mut within: Vec<Stack> = within.collect();
        if within.is_empty() {
            // What has been measured says more than nothing.
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

    /// Who calls the outermost of those functions that it looks within, where that is not measured any more.
    fn callers_within<'s>(&self, stack: &'s Stack) -> Option<&'s [Avma]> {
        let is_in = |f: &Avma| self.within.contains(f);
        let outermost = stack.functions.iter().rposition(is_in)?;
        let is_left = self.dropped.contains_key(&stack.functions[outermost]);
        is_left.then(|| &stack.functions[outermost + 1..])
    }

    /// What of a stack is of this search: the outermost of those functions that it looks within, and what that calls. Where
    /// that is not measured any more, its callers too.
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
