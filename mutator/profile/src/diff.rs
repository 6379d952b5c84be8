//! Changes between two profiles, or between the profiles of several runs before and after, path by path.

mod json;
mod matching;
mod runs;
pub mod statistics;
#[cfg(test)]
mod tests;
mod text;

pub use json::json;
pub use text::text;

use crate::clock::ExitClock;
use crate::profile::{COUNT, PathEntry, Profile, Total};
use matching::{Measured, Sites};
use runs::{Run, Runs};
use rustc_hash::FxHashMap;
use statistics::{adjusted, p_of_counts, p_of_means};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A likelihood of chance up to this is significant.
pub const SIGNIFICANT: f64 = 0.01;

/// All paths of two profiles, or of several on each side.
#[derive(Debug)]
pub struct Diff<'p> {
    /// The profiles of each side, one for each run.
    old: Vec<&'p Profile>,
    new: Vec<&'p Profile>,
    /// The metric that is compared, and its unit; the calls, where that is `count`.
    metric: String,
    unit: String,
    /// Those with the largest change of the sum first. Last those that one side has not measured.
    paths: Vec<Pair<'p>>,
}

/// One path in both, or in one of them.
#[derive(Debug, Default)]
struct Pair<'p> {
    old: Option<Side<'p>>,
    new: Option<Side<'p>>,
    /// That what is compared differs by chance alone; of this path by itself.
    p_alone: Option<f64>,
    /// The same where it is looked for among all paths.
    p: Option<f64>,
    /// That the numbers of calls do, if they were independent of each other.
    p_count: Option<f64>,
    /// Indexes of the matching paths in the first new profile.
    places: Vec<usize>,
    /// True for each old run and each new run that has measured the function.
    measured: [Vec<bool>; 2],
}

/// Indexes of the sides.
const OLD: usize = 0;
const NEW: usize = 1;

/// Why only one side has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InOne {
    New,
    Vanished,
    /// The other side has not measured the function.
    Unmeasured,
}

/// How a path of the new profile compares with the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    /// The path is missing from the old profile.
    New,
    /// The function was not measured in the old profile.
    Unmeasured,
    /// The difference of the means may be chance.
    Chance,
    /// new / old, of the mean per call, or of the number of calls with `count`: 1.1 is a tenth more.
    Changed(f64),
}

/// A path on one side: the sum of all matching paths there.
#[derive(Debug)]
struct Side<'p> {
    /// The first profile with the path, and the path there.
    profile: &'p Profile,
    first: &'p PathEntry,
    /// The sum of all runs.
    total: Total,
    /// The counts of the path in each run of this side.
    runs: Runs,
}

impl<'p> Diff<'p> {
    /// Compares by this metric, which one of them has at least.
    pub fn of(old: &'p Profile, new: &'p Profile, metric: &str) -> Self {
        Self::of_runs(vec![old], vec![new], metric)
    }

    /// Compares several runs of each side. With more than two runs in all, differences between the runs of
    /// one side count as chance.
    pub fn of_runs(old: Vec<&'p Profile>, new: Vec<&'p Profile>, metric: &str) -> Self {
        let common = matching::common(old.iter().chain(&new).copied());
        let mut pairs: BTreeMap<usize, Pair<'p>> = BTreeMap::new();
        let mut places: FxHashMap<(String, bool, Vec<String>), usize> = FxHashMap::default();
        let sites = [&old, &new].map(|runs| -> Vec<Sites> {
            let runs = runs.iter();
            runs.map(|profile| Sites::of(profile, &common)).collect()
        });
        let measured = Measured::by(&sites);
        let sides = [(&old, OLD), (&new, NEW)];
        let runs = sides.into_iter().flat_map(|(runs, side)| {
            let sites = &sites[side];
            let runs = runs.iter().zip(sites).enumerate();
            runs.map(move |(run, (profile, sites))| (*profile, sites, side, run))
        });
        for (profile, sites, of_side, run) in runs {
            for (index, path) in profile.paths.iter().enumerate() {
                let stack = path.stack.iter().map(|&f| sites.frames[f].clone());
                let key = (
                    sites.functions[path.function].clone(),
                    path.complete,
                    stack.collect(),
                );
                let place = places.len();
                let place = *places.entry(key).or_insert(place);
                let function = &sites.functions[path.function];
                let pair = pairs.entry(place).or_insert_with(|| Pair {
                    measured: measured.of(function),
                    ..Pair::default()
                });
                let is_shown = of_side == NEW && run == 0;
                pair.places.extend(is_shown.then_some(index));
                let side = match of_side {
                    OLD => &mut pair.old,
                    _ => &mut pair.new,
                };
                let side = side.get_or_insert_with(|| Side {
                    profile,
                    first: path,
                    total: Total::default(),
                    runs: Runs::of(&pair.measured[of_side]),
                });
                side.total.add(path);
                side.runs.add(run, path, metric);
                if profile.functions[path.function].point {
                    side.total.unmeasured = 0;
                }
            }
        }
        let mut paths: Vec<Pair<'p>> = pairs.into_values().collect();
        let is_one = old.len() + new.len() == 2;
        for pair in &mut paths {
            pair.compare(metric, is_one);
        }
        let alone: Vec<Option<f64>> = paths.iter().map(|pair| pair.p_alone).collect();
        for (pair, p) in paths.iter_mut().zip(adjusted(&alone)) {
            pair.p = p;
        }
        paths.sort_by_key(|pair| {
            let is_unmeasured = pair.in_one() == Some(InOne::Unmeasured);
            (is_unmeasured, Reverse(pair.change(metric).unsigned_abs()))
        });
        let mut known = new.iter().chain(&old).filter_map(|p| p.metric(metric).ok());
        let unit = known
            .next()
            .map_or_else(|| "calls".to_owned(), |m| m.unit.clone());
        Self {
            old,
            new,
            metric: metric.to_owned(),
            unit,
            paths,
        }
    }

    /// True if each side is one run.
    fn is_of_one_run(&self) -> bool {
        self.old.len() + self.new.len() == 2
    }

    /// Why the profiles may not be comparable.
    fn notes(&self) -> Vec<String> {
        let profiles = self.old.iter().chain(&self.new);
        let mut clocks: Vec<ExitClock> = profiles.filter_map(|p| p.session.clock).collect();
        clocks.dedup();
        let note = "the profiles differ in how exits read the clock (--clock): a change of a time may come of it";
        match clocks.len() {
            0 | 1 => Vec::new(),
            _ => vec![note.to_owned()],
        }
    }

    /// How each path of the first new profile compares, by its index there.
    pub fn by_path(&self) -> Vec<Comparison> {
        let paths = self.new.first().map_or(0, |first| first.paths.len());
        let mut all = vec![Comparison::New; paths];
        for pair in &self.paths {
            let is_significant = pair.p.is_some_and(|p| p <= SIGNIFICANT);
            let growth = pair.growth(&self.metric).filter(|_| is_significant);
            let compared = match (pair.in_one(), growth) {
                (Some(InOne::New), _) => Comparison::New,
                (Some(_), _) => Comparison::Unmeasured,
                (None, Some(growth)) => Comparison::Changed(1.0 + growth),
                (None, None) => Comparison::Chance,
            };
            for &place in &pair.places {
                all[place] = compared;
            }
        }
        all
    }

    /// Paths of which a call costs more by so large a part, significantly; of calls, those that have so many more.
    pub fn worse(&self, by: f64) -> usize {
        let is_worse = |pair: &&Pair<'_>| {
            let is_significant = pair.p.is_some_and(|p| p <= SIGNIFICANT);
            is_significant && pair.growth(&self.metric).is_some_and(|growth| growth >= by)
        };
        self.paths.iter().filter(is_worse).count()
    }
}

impl Pair<'_> {
    /// Why only one side has the path. `None` if both have it.
    fn in_one(&self) -> Option<InOne> {
        let is_measured = |side: usize| self.measured[side].contains(&true);
        match (&self.old, &self.new) {
            (Some(_), Some(_)) => None,
            (None, _) if is_measured(OLD) => Some(InOne::New),
            (_, None) if is_measured(NEW) => Some(InOne::Vanished),
            _ => Some(InOne::Unmeasured),
        }
    }

    /// The numbers of the runs of a side that have not measured the function, from 1.
    fn unmeasured_in(&self, side: usize) -> Vec<usize> {
        let runs = (1..).zip(&self.measured[side]);
        let without = runs.filter(|(_, is_measured)| !**is_measured);
        without.map(|(run, _)| run).collect()
    }

    /// Tests for chance. `is_one` says that each side is one run.
    fn compare(&mut self, metric: &str, is_one: bool) {
        let (Some(old), Some(new)) = (&self.old, &self.new) else {
            return;
        };
        self.p_count = if is_one {
            p_of_counts(old.total.counts.count, new.total.counts.count)
        } else {
            old.runs.p_of(&new.runs, Run::calls)
        };
        self.p_alone = match metric {
            COUNT => self.p_count,
            _ if !is_one => old.runs.p_of(&new.runs, Run::mean),
            _ => old
                .total
                .values
                .get(metric)
                .zip(new.total.values.get(metric))
                .and_then(|(old, new)| p_of_means(old, new)),
        };
    }

    /// What the sum has grown by.
    fn change(&self, metric: &str) -> i128 {
        let sum = |side: &Option<Side<'_>>| side.as_ref().map_or(0, |side| side.sum(metric));
        sum(&self.new).saturating_sub(sum(&self.old))
    }

    /// What the mean has grown by, or the calls, as a part of what it was.
    fn growth(&self, metric: &str) -> Option<f64> {
        let (old, new) = (self.old.as_ref()?, self.new.as_ref()?);
        let (old, new) = match metric {
            COUNT => (old.sum(metric) as f64, new.sum(metric) as f64),
            _ => (old.mean(metric)?, new.mean(metric)?),
        };
        (old > 0.0).then(|| new / old - 1.0)
    }
}

impl Side<'_> {
    /// The sum of the metric, of one run on the average.
    fn sum(&self, metric: &str) -> i128 {
        let sum = match metric {
            COUNT => self.total.counts.count.into(),
            name => self.total.counts.timers.get(name).map_or(0, |s| s.sum),
        };
        sum / self.runs.count() as i128
    }

    /// The calls of one run on the average.
    fn calls(&self) -> u64 {
        self.total.counts.count / self.runs.count() as u64
    }

    /// The mean of a call: with several runs the mean of their means, so that each run has the same weight.
    fn mean(&self, metric: &str) -> Option<f64> {
        match self.runs.count() {
            1 => self.total.values.get(metric)?.mean(),
            _ => self.runs.mean(Run::mean),
        }
    }

    /// The standard error of the mean.
    fn standard_error(&self, metric: &str) -> Option<f64> {
        match self.runs.count() {
            1 => statistics::standard_error(self.total.values.get(metric)?),
            _ => self.runs.standard_error(Run::mean),
        }
    }
}
