//! The limit of the overhead: decides which functions to measure less, so that measuring takes no
//! more than a given share of the CPU time.
//!
//! A function can be measured in full, only counted, or taken out. Each look compares the overhead
//! since the last one with the CPU time of the process. If it is too large, the functions whose
//! measurement costs most for the time that it explains are measured less: as many at once as are
//! needed. This module knows no process: its input is the load, and its output is the changes.
//!
//! ```text
//! cost of a function = estimate by calls, frames and new paths · scale + unseen · calls
//! scale              = overhead by the runtime's own account ÷ estimates of all functions
//! own CPU time       = CPU time − cost of all functions
//! share              = cost ÷ CPU time = cost ÷ (own CPU time + cost)
//! ```
//!
//! Fewer measurements make the program faster, so a share is always that of the same work: `room`
//! is the largest cost whose share is small enough beside the own CPU time.

mod choice;
mod cost;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ipath_session::collect::{FunctionLoad, Load};

use choice::{Candidate, choose};
use cost::Cost;

pub use choice::Lowered;
pub use pace::Pace;

/// The limit of the overhead as a share of one processor, below which nothing is throttled: a
/// mostly idle process can be measured. The limit of a search has the same
/// ([`Bounds::is_above`](crate::search::Bounds::is_above)).
const FLOOR: f64 = 0.01;
/// The part of the limit that is left after a change, so that the next look does not change it
/// again.
const AFTER: f64 = 0.7;
/// The time in which an old cost loses most of its weight, in nanoseconds.
const MEMORY: f64 = 1e9;
/// The CPU time whose share may be spent at once, in nanoseconds: each path is expensive when it is
/// new.
const GRACE: f64 = 20e6;
/// The largest part of the CPU time that counts as overhead. The estimates are not exact, and the
/// program itself takes some time.
const MOST: f64 = 0.98;

/// A limit, with the load up to the last look.
#[derive(Clone, Debug)]
pub struct Throttle {
    /// The limit, as a share of the CPU time.
    limit: f64,
    last: Option<Load>,
    /// The recent cost and CPU time, in nanoseconds. The older they are, the less they weigh.
    recent: Recent,
}

#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    cost: f64,
    cpu: f64,
}

impl Recent {
    fn add(&mut self, elapsed: f64, cost: f64, cpu: f64) {
        let kept = (-elapsed / MEMORY).exp();
        self.cost = self.cost * kept + cost;
        self.cpu = self.cpu * kept + cpu;
    }

    fn is_above(&self, limit: f64) -> bool {
        self.cost > limit * self.cpu.max(GRACE)
    }
}

impl Throttle {
    /// A limit, as a share of the CPU time. The load of a session that begins is 0.
    pub fn new(limit: f64) -> Self {
        Self {
            limit,
            last: None,
            recent: Recent::default(),
        }
    }

    /// Begins anew with this load, after the functions have been changed.
    pub fn begin(&mut self, load: Load) {
        self.last = Some(load);
    }

    /// The functions to measure less, by id, ascending. Empty if the overhead is below the limit,
    /// or if this is the first load.
    pub fn next(&mut self, load: Load) -> Vec<(usize, Lowered)> {
        let Some(last) = self.last.replace(load.clone()) else {
            return Vec::new();
        };
        let elapsed = load.elapsed_ns.saturating_sub(last.elapsed_ns) as f64;
        let cpu = load.cpu_ns.saturating_sub(last.cpu_ns) as f64;
        let costs = Costs::between(&last, &load, cpu);
        let cost = costs.sum();
        self.recent.add(elapsed, cost, cpu);
        let is_above =
            cost > self.limit * cpu && cost > FLOOR * elapsed && self.recent.is_above(self.limit);
        if !is_above {
            return Vec::new();
        }
        let after = AFTER * self.limit;
        let room = (after / (1.0 - after) * (cpu - cost)).max(AFTER * FLOOR * elapsed);
        choose(costs.candidates, room)
    }
}

/// The cost of each function between two looks.
struct Costs {
    candidates: Vec<Candidate>,
}

impl Costs {
    /// `cpu` is the CPU time in between, in nanoseconds.
    fn between(last: &Load, load: &Load, cpu: f64) -> Self {
        let before: BTreeMap<usize, &FunctionLoad> =
            last.functions.iter().map(|f| (f.id, f)).collect();
        let since = |function: &FunctionLoad| {
            let before = before.get(&function.id).copied().copied();
            Since::between(before.unwrap_or_default(), *function)
        };
        let all: Vec<Since> = load.functions.iter().map(since).collect();
        let estimate: f64 = all.iter().map(|since| since.cost.now()).sum();
        let measured = load.measuring_ns.saturating_sub(last.measuring_ns) as f64;
        let scale = cost::scale(measured, estimate);
        let own: f64 = all.iter().map(|since| since.own).sum();
        let candidate = |since: &Since| Candidate {
            id: since.id,
            is_timed: since.is_timed,
            may_count: since.may_count,
            now: scale * since.cost.now() + since.cost.unseen(),
            counted: scale * since.cost.counted() + since.cost.unseen_counted(),
            told: since.own / own.max(1.0),
        };
        let mut candidates: Vec<Candidate> = all.iter().map(candidate).collect();
        let sum: f64 = candidates.iter().map(|c| c.now).sum();
        let possible = (MOST * cpu / sum.max(1.0)).min(1.0);
        for candidate in &mut candidates {
            candidate.now *= possible;
            candidate.counted *= possible;
        }
        Self { candidates }
    }

    fn sum(&self) -> f64 {
        self.candidates.iter().map(|c| c.now).sum()
    }
}

/// A function between two looks.
struct Since {
    id: usize,
    is_timed: bool,
    may_count: bool,
    cost: Cost,
    /// Its time without measured functions that it calls, in nanoseconds.
    own: f64,
}

impl Since {
    fn between(before: FunctionLoad, now: FunctionLoad) -> Self {
        let since = |of: fn(&FunctionLoad) -> u64| of(&now).saturating_sub(of(&before)) as f64;
        Self {
            id: now.id,
            is_timed: now.is_timed,
            may_count: now.may_count,
            cost: Cost {
                is_timed: now.is_timed,
                calls: since(|f| f.calls),
                frames: since(|f| f.frames),
                paths: since(|f| f.paths),
                unpathed: since(|f| f.unpathed),
            },
            own: since(|f| f.own_ns),
        }
    }
}
