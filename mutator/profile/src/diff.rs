//! Comparison of two profiles, or of several runs before and after a change, path by path.

mod inside;
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
use std::collections::{BTreeMap, BTreeSet};

/// The highest p-value that is significant.
pub const SIGNIFICANT: f64 = 0.01;

/// The comparison of all paths of two profiles, or of several profiles on each side.
#[derive(Debug)]
pub struct Diff<'p> {
    /// The profiles of the old side, one for each run.
    old: Vec<&'p Profile>,
    /// The profiles of the new side, one for each run.
    new: Vec<&'p Profile>,
    /// The name of the compared metric. `count` compares the numbers of calls.
    metric: String,
    /// The unit of the compared metric.
    unit: String,
    /// The paths of both sides. Pairs with the largest change of the sum come first, and pairs that
    /// one side has not measured last.
    paths: Vec<Pair<'p>>,
}

/// A path that both sides have, or one of them. A p-value is `None` if a side lacks the path or has
/// too few values.
#[derive(Debug, Default)]
struct Pair<'p> {
    /// `None` if the old side lacks the path.
    old: Option<Side<'p>>,
    /// `None` if the new side lacks the path.
    new: Option<Side<'p>>,
    /// The p-value of the change of the compared metric, for this path by itself.
    p_alone: Option<f64>,
    /// `p_alone`, adjusted for the number of compared paths.
    p: Option<f64>,
    /// The p-value of the change of the number of calls. With one run on each side, it assumes that
    /// calls are independent of each other.
    p_count: Option<f64>,
    /// Indexes of the matching paths in the first new profile.
    places: Vec<usize>,
    /// For the old and the new side: one element per run, true if the run measured the function.
    measured: [Vec<bool>; 2],
}

/// The index of the old side in arrays of both sides.
const OLD: usize = 0;
/// The index of the new side in arrays of both sides.
const NEW: usize = 1;

/// The reason that only one side has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InOne {
    /// The old side has measured the function, but lacks the path.
    New,
    /// The new side has measured the function, but lacks the path.
    Vanished,
    /// The other side has not measured the function.
    Unmeasured,
}

/// The comparison of a path of the new profile with the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    /// The function was measured in the old profile, but the path is missing from it.
    New,
    /// The function was not measured in the old profile.
    Unmeasured,
    /// The difference is not significant or cannot be tested: it may be due to chance.
    Chance,
    /// new / old, of the mean per call, or of the number of calls for `count`: 1.1 is 10 % more.
    Changed(f64),
}

/// A path on one side, summed over the runs.
#[derive(Debug)]
struct Side<'p> {
    /// The first profile of the side that has the path.
    profile: &'p Profile,
    /// The path in that first profile.
    first: &'p PathEntry,
    /// The sum over all runs.
    total: Total,
    /// The calls and sums of the path in each run of this side.
    runs: Runs,
}

impl<'p> Diff<'p> {
    /// Compares two profiles by a metric, which at least one of them must have.
    pub fn of(old: &'p Profile, new: &'p Profile, metric: &str) -> Self {
        Self::of_runs(vec![old], vec![new], metric)
    }

    /// Compares several runs on each side. With more than two runs in all, the differences between
    /// runs of the same side determine the differences that may be due to chance.
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
                    profile.apart(path).into_iter().chain(stack).collect(),
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

    /// True if each side is a single run.
    fn is_of_one_run(&self) -> bool {
        self.old.len() + self.new.len() == 2
    }

    /// Reasons that the profiles may not be comparable.
    fn notes(&self) -> Vec<String> {
        let profiles = self.old.iter().chain(&self.new);
        let mut clocks: Vec<ExitClock> = profiles.filter_map(|p| p.session.clock).collect();
        clocks.dedup();
        let note = "the profiles differ in how exits read the clock (--clock): this can cause \
            changes of times";
        let clock = (clocks.len() > 1).then(|| note.to_owned());
        clock.into_iter().chain(self.throttled()).collect()
    }

    /// A note on the functions that were throttled on one of the sides, whose times are not those
    /// of all calls. `None` if there are none.
    fn throttled(&self) -> Option<String> {
        /// The most functions to name.
        const NAMED: usize = 8;
        let profiles = self.old.iter().chain(&self.new);
        let functions = profiles.flat_map(|profile| &profile.functions);
        let throttled = functions.filter(|function| function.throttled.is_some());
        let names: BTreeSet<&str> = throttled.map(|function| function.name.as_str()).collect();
        let mut named: Vec<String> = names.iter().take(NAMED).map(|&n| n.to_owned()).collect();
        let more = names.len().saturating_sub(NAMED);
        named.extend((more > 0).then(|| format!("{more} more")));
        (!named.is_empty()).then(|| {
            format!(
                "--max-overhead has throttled functions, so their calls and times are not \
                comparable: {}",
                named.join(", ")
            )
        })
    }

    /// How each path of the first new profile compares: one element per path, in that profile's
    /// order. Empty if there is no new profile.
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

    /// The number of paths whose mean per call grew significantly by at least the fraction `by`
    /// (0.1 is 10 %). For `count`, it is the number of calls that must have grown.
    pub fn worse(&self, by: f64) -> usize {
        let is_worse = |pair: &&Pair<'_>| {
            let is_significant = pair.p.is_some_and(|p| p <= SIGNIFICANT);
            is_significant && pair.growth(&self.metric).is_some_and(|growth| growth >= by)
        };
        self.paths.iter().filter(is_worse).count()
    }
}

impl Pair<'_> {
    /// The reason that only one side has the path. `None` if both have it.
    fn in_one(&self) -> Option<InOne> {
        let is_measured = |side: usize| self.measured[side].contains(&true);
        match (&self.old, &self.new) {
            (Some(_), Some(_)) => None,
            (None, _) if is_measured(OLD) => Some(InOne::New),
            (_, None) if is_measured(NEW) => Some(InOne::Vanished),
            _ => Some(InOne::Unmeasured),
        }
    }

    /// The runs of a side that have not measured the function, numbered from 1.
    fn unmeasured_in(&self, side: usize) -> Vec<usize> {
        let runs = (1..).zip(&self.measured[side]);
        let without = runs.filter(|(_, is_measured)| !**is_measured);
        without.map(|(run, _)| run).collect()
    }

    /// Computes the p-values of this path by itself. They stay `None` if a side lacks the path.
    /// `is_one` is true if each side is a single run.
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

    /// The growth of the sum of the metric from the old to the new side, averaged over the runs, in
    /// the metric's unit. The sum of a side that lacks the path is 0.
    fn change(&self, metric: &str) -> i128 {
        let sum = |side: &Option<Side<'_>>| side.as_ref().map_or(0, |side| side.sum(metric));
        sum(&self.new).saturating_sub(sum(&self.old))
    }

    /// The relative growth of the mean, or of the number of calls for `count`: 0.1 is 10 % more.
    /// `None` if a side lacks the path or the old side has no value above 0.
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
    /// The sum of the metric, or the number of calls for `count`, averaged over the runs that
    /// measured the function. 0 if the metric has no values.
    fn sum(&self, metric: &str) -> i128 {
        let sum = match metric {
            COUNT => self.total.counts.count.into(),
            name => self.total.counts.timers.get(name).map_or(0, |s| s.sum),
        };
        sum / self.runs.count() as i128
    }

    /// The number of calls, averaged over the runs that measured the function.
    fn calls(&self) -> u64 {
        self.total.counts.count / self.runs.count() as u64
    }

    /// The mean per call. With several runs, it is the mean of their means, so that each run has
    /// the same weight. `None` if the metric has no values.
    fn mean(&self, metric: &str) -> Option<f64> {
        match self.runs.count() {
            1 => self.total.values.get(metric)?.mean(),
            _ => self.runs.mean(Run::mean),
        }
    }

    /// The standard error of the mean, in the metric's unit. `None` if there are too few values,
    /// or, with one run, an incomplete histogram.
    fn standard_error(&self, metric: &str) -> Option<f64> {
        match self.runs.count() {
            1 => statistics::standard_error(self.total.values.get(metric)?),
            _ => self.runs.standard_error(Run::mean),
        }
    }
}
