//! The numbers of functions, threads and paths as rows of a table.

use super::human;
use super::table::Table;
use super::throttled::state;
use std::collections::BTreeMap;

use crate::profile::{Metric, PerCycle, Presence, Profile, TimerStats, Total, off_cpu, printable};

/// The metrics that have rows, and the columns for shares.
pub(super) struct Rows<'p> {
    profile: &'p Profile,
    /// The metrics except `count`, the chosen one first.
    metrics: &'p [&'p Metric],
    /// True if the rows are parts of a whole.
    has_share: bool,
}

/// Columns after the calls and the metric.
const NUMBERS: [&str; 7] = ["total", "mean", "p50", "p99", "max", SHARE, "of run"];
const SHARE: &str = "share";
/// The number of columns that are values of the metric.
const VALUES: usize = 5;

/// The heading of the column `at` in [`NUMBERS`] if there is one metric: `cpu p99`, `share`.
fn heading_of(metric: &Metric, at: usize, heading: &str) -> String {
    if at < VALUES {
        format!("{} {heading}", printable(off_cpu::heading(&metric.name)))
    } else {
        heading.to_owned()
    }
}

impl<'p> Rows<'p> {
    /// Creates rows for parts of a whole.
    pub(super) fn of_parts(profile: &'p Profile, metrics: &'p [&'p Metric]) -> Self {
        Self {
            profile,
            metrics,
            has_share: true,
        }
    }

    /// Creates rows without a whole.
    pub(super) fn of_wholes(profile: &'p Profile, metrics: &'p [&'p Metric]) -> Self {
        Self {
            has_share: false,
            ..Self::of_parts(profile, metrics)
        }
    }

    /// The headings of the columns.
    pub(super) fn headings(&self) -> Vec<String> {
        let mut headings = match self.metrics {
            [] => vec!["calls".to_owned(), SHARE.to_owned()],
            [metric] => {
                let of_metric = |(at, heading)| heading_of(metric, at, heading);
                let numbers = NUMBERS.into_iter().enumerate().map(of_metric);
                std::iter::once("calls".to_owned()).chain(numbers).collect()
            }
            _ => {
                let all = [&["calls", "metric"][..], &NUMBERS].concat();
                all.into_iter().map(str::to_owned).collect()
            }
        };
        headings.retain(|heading| self.has_share || *heading != SHARE);
        headings
    }

    /// Adds a row for each metric with the numbers of `part`, and rows for ratios of metrics.
    /// Without metrics, adds one row with the calls. Shares are of `whole`. The remarks on the
    /// accuracy follow `remark`.
    pub(super) fn add(&self, table: &mut Table, part: &Total, whole: &Total, remark: &str) {
        let remark = remarks(part, remark);
        let mut calls = part.counts.count.to_string();
        if self.metrics.is_empty() {
            let share = human::share(part.counts.count.into(), whole.counts.count.into());
            let cells = std::iter::once(calls).chain(self.has_share.then_some(share));
            return table.row(cells.collect(), remark);
        }
        let mut rows = Vec::new();
        for metric in self.metrics {
            let mut cells = vec![std::mem::take(&mut calls)];
            if self.metrics.len() > 1 {
                cells.push(printable(off_cpu::heading(&metric.name)).into_owned());
            }
            let numbers = NUMBERS.iter().zip(self.numbers(metric, part, whole));
            let numbers = numbers.filter(|(name, _)| self.has_share || **name != SHARE);
            cells.extend(numbers.map(|(_, cell)| cell));
            rows.push(cells);
            if PerCycle::comes_after(&metric.name) {
                rows.extend(per_cycle(part));
            }
            if off_cpu::comes_after(&metric.name) {
                rows.extend(waiting(part, &metric.unit));
            }
        }
        table.rows(rows, remark);
    }

    /// Adds a row for each metric, if only its sum is known. Without metrics, adds one row with the
    /// calls.
    pub(super) fn add_sums(
        &self,
        table: &mut Table,
        (count, sums): (u64, &BTreeMap<String, i128>),
        remark: &str,
    ) {
        let mut calls = count.to_string();
        if self.metrics.is_empty() {
            return table.row(vec![calls], remark.to_owned());
        }
        let row = |metric: &&Metric| {
            let mut cells = vec![std::mem::take(&mut calls)];
            if self.metrics.len() > 1 {
                cells.push(printable(off_cpu::heading(&metric.name)).into_owned());
            }
            let sum = sums.get(&metric.name).copied();
            cells.push(sum.map_or("-".to_owned(), |sum| human::quantity(sum, &metric.unit)));
            cells
        };
        let rows = self.metrics.iter().map(row).collect();
        table.rows(rows, remark.to_owned());
    }

    /// The cells of the columns [`NUMBERS`]. All are `-` if the part has no values of the metric.
    fn numbers(&self, metric: &Metric, part: &Total, whole: &Total) -> [String; 7] {
        let name = &metric.name;
        let (Some(stats), Some(values), Some(all)) = (
            part.counts.timers.get(name),
            part.values.get(name).filter(|values| values.count() > 0),
            whole.values.get(name),
        ) else {
            return NUMBERS.map(|_| "-".to_owned());
        };
        let unit = metric.unit.as_str();
        let quantile = |per_mille| {
            let value = values.quantile(per_mille);
            value.map_or_else(|| "-".to_owned(), |value| human::quantity(value, unit))
        };
        let share = if all.has_negative() {
            // If the terms of a sum cancel out, shares of it mean nothing.
            String::new()
        } else {
            human::share(values.sum(), all.sum())
        };
        let marked = |text: String| human::at_least(text, unit, part.tail);
        let lacking = |text: String| human::at_least(text, unit, part.lacking());
        [
            lacking(human::quantity(values.sum(), unit)),
            marked(human::average(values.mean(), unit)),
            quantile(500),
            quantile(990),
            human::quantity(stats.max.into(), unit),
            share,
            lacking(self.of_run(metric, stats, whole.presence)),
        ]
    }

    /// The share of the run, as text. Empty if [`Profile::run_of`] is not known.
    fn of_run(&self, metric: &Metric, stats: &TimerStats, presence: Presence) -> String {
        // Nested activations run within the time of the outermost one.
        let once = stats.outermost.unwrap_or(stats.sum);
        let run = self.profile.run_of(metric, presence);
        run.map_or_else(String::new, |run| human::of_run(once, run.into()))
    }
}

/// A row with the instructions per cycle. `None` unless [`PerCycle::ratio`] is known.
fn per_cycle(part: &Total) -> Option<Vec<String>> {
    let ratio = PerCycle::of(&part.counts.timers).ratio()?;
    let mut cells = ["", "IPC", ""].map(str::to_owned).to_vec();
    cells.push(human::ratio(ratio));
    Some(cells)
}

/// A row with the time off the processor without the time spent waiting for one. `None` unless both
/// were measured for the same calls.
fn waiting(part: &Total, unit: &str) -> Option<Vec<String>> {
    let (sum, calls) = off_cpu::waiting(&part.counts.timers)?;
    let mut cells = ["", off_cpu::WAITING].map(str::to_owned).to_vec();
    cells.push(human::quantity(sum, unit));
    cells.push(human::average(Some(sum as f64 / calls as f64), unit));
    Some(cells)
}

/// `first`, then remarks on the accuracy of a part, separated by commas. Empty if there are none.
pub(super) fn remarks(part: &Total, first: &str) -> String {
    let mut remarks: Vec<String> = Vec::new();
    remarks.extend(Some(first).filter(|r| !r.is_empty()).map(str::to_owned));
    for (n, what) in [
        (part.unwound.unwrap_or(0), "unwound"),
        (part.open.unwrap_or(0), "still running"),
        (part.tail, "left by a tail call"),
        (part.unmeasured, "not measured by every metric"),
    ] {
        if n > 0 {
            remarks.push(format!("{n} {what}"));
        }
    }
    remarks.extend(human::incomplete(part.incomplete, part.counts.count));
    remarks.extend(part.throttled.map(state));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::profile::Metric;
    use crate::report::{Options, text};
    use crate::sample::sample;

    /// The report shows `off-cpu`, and below it `waiting` without the wait for a processor.
    #[test]
    fn waiting_is_told_from_preemption() {
        let mut profile = sample();
        let wall = profile.metrics[1].clone();
        for name in ["blocked", "run-delay"].map(str::to_owned) {
            profile.metrics.push(Metric {
                name: name.clone(),
                ..wall.clone()
            });
            let functions = profile.functions.iter_mut().map(|f| &mut f.totals.counts);
            for counts in functions.chain(profile.paths.iter_mut().map(|p| &mut p.metrics)) {
                let wall = counts.timers.get("wall").unwrap().clone();
                counts.timers.insert(name.clone(), wall);
            }
        }
        let text = {
            let mut out = Vec::new();
            text(&profile, &Options::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        for shown in [" off-cpu (blocked)", "  off-cpu ", "  waiting     0 ns"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
