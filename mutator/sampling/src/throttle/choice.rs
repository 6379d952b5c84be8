//! The choice of functions to measure less.
//!
//! A greedy choice: the change that saves most for what it gives up comes first. Afterwards, those
//! that turn out not to be needed are taken back, the smallest first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The worth of the times of a function, beside its share of all exclusive time.
const TIMES: f64 = 0.001;
/// The worth of the count of a function, as a share of all exclusive time.
const COUNT: f64 = 0.01;

/// The way in which a function is measured after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lowered {
    /// Its calls are only counted.
    Counted,
    /// It is out.
    Out,
}

/// A function that can be measured less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: usize,
    pub(super) is_timed: bool,
    /// True if it can be counted without being timed.
    pub(super) may_count: bool,
    /// Its cost, in nanoseconds.
    pub(super) now: f64,
    /// Its cost if it were only counted, in nanoseconds.
    pub(super) counted: f64,
    /// Its share of all exclusive time.
    pub(super) told: f64,
}

impl Candidate {
    /// The cost after a change. `None` stands for no change.
    fn cost(&self, lowered: Option<Lowered>) -> f64 {
        match lowered {
            None => self.now,
            Some(Lowered::Counted) => self.counted,
            Some(Lowered::Out) => 0.0,
        }
    }

    /// The change after `lowered`, which measures the function less still.
    fn further(&self, lowered: Option<Lowered>) -> Option<Lowered> {
        match lowered {
            None if self.is_timed && self.may_count => Some(Lowered::Counted),
            None | Some(Lowered::Counted) => Some(Lowered::Out),
            Some(Lowered::Out) => None,
        }
    }

    /// What a change from `from` to `to` gives up.
    fn loss(&self, from: Option<Lowered>, to: Lowered) -> f64 {
        let times = match from {
            None if self.is_timed => self.told + TIMES,
            _ => 0.0,
        };
        let count = if to == Lowered::Out { COUNT } else { 0.0 };
        times + count
    }
}

/// A change that is not chosen yet.
struct Move {
    /// The saving for what it gives up.
    worth: f64,
    /// The index of the candidate.
    index: usize,
    to: Lowered,
}

impl Move {
    fn of(candidate: &Candidate, index: usize, from: Option<Lowered>) -> Option<Self> {
        let to = candidate.further(from)?;
        let saved = candidate.cost(from) - candidate.cost(Some(to));
        (saved > 0.0).then(|| Self {
            worth: saved / candidate.loss(from, to),
            index,
            to,
        })
    }
}

impl PartialEq for Move {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Move {}

impl PartialOrd for Move {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Move {
    fn cmp(&self, other: &Self) -> Ordering {
        let of = |one: &Self| std::cmp::Reverse(one.index);
        let by_worth = self.worth.total_cmp(&other.worth);
        by_worth.then_with(|| of(self).cmp(&of(other)))
    }
}

/// The changes after which all functions together cost at most `room` nanoseconds, by id,
/// ascending. All possible changes if that is not enough.
pub(super) fn choose(candidates: Vec<Candidate>, room: f64) -> Vec<(usize, Lowered)> {
    let mut lowered: Vec<Option<Lowered>> = vec![None; candidates.len()];
    let mut cost: f64 = candidates.iter().map(|c| c.now).sum();
    let all = candidates.iter().enumerate();
    let mut moves: BinaryHeap<Move> = all.filter_map(|(i, c)| Move::of(c, i, None)).collect();
    while cost > room
        && let Some(Move { index, to, .. }) = moves.pop()
    {
        let candidate = &candidates[index];
        cost -= candidate.cost(lowered[index]) - candidate.cost(Some(to));
        lowered[index] = Some(to);
        moves.extend(Move::of(candidate, index, Some(to)));
    }
    let mut chosen: Vec<usize> = (0..candidates.len())
        .filter(|&index| lowered[index].is_some())
        .collect();
    let saved = |index: usize| candidates[index].now - candidates[index].cost(lowered[index]);
    chosen.sort_by(|&a, &b| saved(a).total_cmp(&saved(b)));
    for index in chosen {
        let candidate = &candidates[index];
        let may_count = candidate.is_timed && candidate.may_count;
        let counted = may_count.then_some(Some(Lowered::Counted));
        for less in [None].into_iter().chain(counted) {
            let more = candidate.cost(less) - candidate.cost(lowered[index]);
            if less < lowered[index] && cost + more <= room {
                cost += more;
                lowered[index] = less;
                break;
            }
        }
    }
    let changes = candidates.iter().zip(lowered);
    let mut changes: Vec<(usize, Lowered)> = changes
        .filter_map(|(candidate, to)| Some((candidate.id, to?)))
        .collect();
    changes.sort_unstable();
    changes
}
