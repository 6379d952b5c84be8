//! A report as data, for programs that process the numbers shown in it.

use super::{Options, Report, Selection, human, loss_lines, processes};
use crate::profile::{
    ByValue, Counts, Distribution, Exactness, InProcess, Inside, Losses, PathEntry, Process,
    Profile, SingleCall,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The data of a report.
#[derive(Debug, Serialize)]
pub struct Shown<'p> {
    /// The metric that is the sort key. `None` if the sort key is the number of calls.
    metric: Option<String>,
    /// The processes that the profile sums. Empty if it is of one process. Other items refer to
    /// them by index.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    processes: &'p [Process],
    /// The functions shown, in sort order.
    functions: Vec<OfFunction<'p>>,
    /// The number of selected functions, including those left out.
    functions_in_all: usize,
    /// The paths shown, in sort order.
    paths: Vec<OfPath<'p>>,
    /// The number of selected paths, including those left out.
    paths_in_all: usize,
    losses: &'p Losses,
    /// Calls by the verdict of the code on their paths, if the paths were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    exactness: Option<Exactness>,
    /// The losses, one phrase each. Empty if nothing was lost.
    not_exact: Vec<String>,
}

/// A function with the sums of its selected paths. Fields without a comment are those of
/// [`Function`](crate::profile::Function) and [`Total`](crate::profile::Total).
#[derive(Debug, Serialize)]
struct OfFunction<'p> {
    name: &'p str,
    linkage: &'p str,
    /// The path of the module's file.
    module: &'p str,
    address: u64,
    /// The number of selected paths.
    paths: usize,
    unwound: Option<u64>,
    open: Option<u64>,
    tail: u64,
    incomplete: u64,
    unmeasured: u64,
    totals: Counts,
    /// By the metric's name.
    statistics: BTreeMap<String, Statistics>,
    /// The function's totals in each process. Empty if the profile is of one process, or if they
    /// are not known for the selected paths.
    processes: Vec<InProcess>,
    /// The control flow inside the function, of all its calls. Empty if it was not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inside: Vec<&'p Inside>,
    /// The slowest calls on the selected paths. Empty if none are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slowest: Vec<&'p SingleCall>,
}

/// A path. Fields without a comment are those of [`PathEntry`].
#[derive(Debug, Serialize)]
struct OfPath<'p> {
    /// The index of the path in the profile.
    path: usize,
    /// The function's demangled name.
    function: &'p str,
    /// Displayed frames, innermost first. If the options leave out frames, the last element is
    /// their number as text; else it is the root if `complete`.
    stack: Vec<String>,
    complete: bool,
    thread: Option<u32>,
    process: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'p ByValue>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    slower: bool,
    unwound: Option<u64>,
    open: Option<u64>,
    tail: u64,
    /// The number of calls that at least one metric has not measured.
    unmeasured: u64,
    /// The path's share of the cost of its function, from 0 to 1. `None` if that cost is not above
    /// 0.
    share: Option<f64>,
    metrics: &'p Counts,
    /// By the metric's name.
    statistics: BTreeMap<String, Statistics>,
}

/// Statistics of one metric's values, derived from sums and histograms
/// (docs/reference/statistics.md), in the metric's unit. `None` without values; the quantiles and
/// the deviation also if the histogram is incomplete.
#[derive(Debug, Serialize)]
struct Statistics {
    /// The number of values.
    n: u64,
    mean: Option<f64>,
    deviation: Option<f64>,
    p50: Option<i128>,
    p90: Option<i128>,
    p99: Option<i128>,
}

impl Statistics {
    fn of(values: &Distribution) -> Self {
        Self {
            n: values.count(),
            mean: values.mean(),
            deviation: values.deviation(),
            p50: values.quantile(500),
            p90: values.quantile(900),
            p99: values.quantile(990),
        }
    }

    /// The statistics of each metric, by the metric's name.
    fn of_all(counts: &Counts) -> BTreeMap<String, Self> {
        let timers = counts.timers.iter();
        timers
            .map(|(name, stats)| (name.to_owned(), Self::of(&Distribution::of(stats))))
            .collect()
    }
}

/// The content of the report that [`selected`](super::selected) writes, as data.
pub fn json<'p>(profile: &'p Profile, shown: &Selection, options: &'p Options) -> Shown<'p> {
    let report = Report::new(profile, shown, options);
    let (paths, paths_in_all) = report.chosen();
    let of_path = |&(index, path): &(usize, &'p PathEntry)| {
        let function = &profile.functions[path.function];
        let depth = options.depth.unwrap_or(usize::MAX);
        let frames = path.stack.iter().take(depth);
        let names = |&frame| report.lines(frame).iter().map(|line| line.whole());
        let mut stack: Vec<String> = frames.flat_map(names).collect();
        let hidden = path.stack.len().saturating_sub(depth);
        if hidden > 0 {
            stack.push(human::count(hidden as u64, "more frame"));
        }
        OfPath {
            path: index,
            function: &function.name,
            stack,
            complete: path.complete,
            thread: path.thread,
            process: path.process,
            phase: path.phase,
            by: path.by.as_ref(),
            slower: path.slower,
            unwound: path.unwound,
            open: path.open,
            tail: path.tail,
            unmeasured: if function.point { 0 } else { path.unmeasured() },
            share: report.share(path),
            metrics: &path.metrics,
            statistics: Statistics::of_all(&path.metrics),
        }
    };
    let of_function = |&index: &usize| {
        let function = &profile.functions[index];
        let total = &report.totals[index];
        let paths = report.paths[index].iter().map(|(_, path)| *path);
        let paths: Vec<&PathEntry> = paths.collect();
        OfFunction {
            name: &function.name,
            linkage: &function.linkage,
            module: &profile.modules[function.module].path,
            address: function.address,
            paths: paths.len(),
            unwound: total.unwound,
            open: total.open,
            tail: total.tail,
            incomplete: total.incomplete,
            unmeasured: total.unmeasured,
            totals: total.counts.clone(),
            statistics: Statistics::of_all(&total.counts),
            processes: processes::parts(function, &paths, total.counts.count).into_owned(),
            inside: profile
                .inside
                .iter()
                .filter(|i| i.function == index)
                .collect(),
            slowest: report.slowest_of(index),
        }
    };
    Shown {
        metric: report.sorted_by().map(str::to_owned),
        processes: &profile.processes,
        functions: report.listed().iter().map(of_function).collect(),
        functions_in_all: report.order.len(),
        paths: paths.iter().map(of_path).collect(),
        paths_in_all,
        losses: &profile.losses,
        exactness: profile.exactness,
        not_exact: loss_lines(profile),
    }
}
