//! A report as data, for programs that want what people are shown.

use super::{Options, Report, Selection, human, loss_lines, processes};
use crate::profile::{
    Counts, Distribution, Exactness, InProcess, Losses, PathEntry, Process, Profile,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is shown of a profile.
#[derive(Debug, Serialize)]
pub struct Shown<'p> {
    /// The metric that is sorted by; none where that is the calls.
    metric: Option<String>,
    /// The processes that others are told of by their places here, where there are several.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    processes: &'p [Process],
    functions: Vec<OfFunction<'p>>,
    /// How many functions there are, of those that were asked for.
    functions_in_all: usize,
    paths: Vec<OfPath<'p>>,
    /// How many paths there are, likewise.
    paths_in_all: usize,
    losses: &'p Losses,
    /// Calls by the verdict of the code on their paths, if those were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    exactness: Option<Exactness>,
    /// What is not exact, a phrase each; empty where nothing was lost.
    not_exact: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OfFunction<'p> {
    name: &'p str,
    linkage: &'p str,
    module: &'p str,
    address: u64,
    paths: usize,
    unwound: Option<u64>,
    open: Option<u64>,
    tail: u64,
    incomplete: u64,
    unmeasured: u64,
    totals: Counts,
    statistics: BTreeMap<String, Statistics>,
    /// What each process has of it, where there are several.
    processes: Vec<InProcess>,
}

#[derive(Debug, Serialize)]
struct OfPath<'p> {
    /// Its place in the profile.
    path: usize,
    function: &'p str,
    /// As they are shown, the nearest first; the last is the root where `complete`.
    stack: Vec<String>,
    complete: bool,
    thread: Option<u32>,
    process: Option<usize>,
    unwound: Option<u64>,
    open: Option<u64>,
    tail: u64,
    unmeasured: u64,
    /// Part of what its function has cost, from 0 to 1.
    share: Option<f64>,
    metrics: &'p Counts,
    statistics: BTreeMap<String, Statistics>,
}

/// What is derived from sums and histograms (docs/statistics.md).
#[derive(Debug, Serialize)]
struct Statistics {
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

    fn of_all(counts: &Counts) -> BTreeMap<String, Self> {
        let timers = counts.timers.iter();
        timers
            .map(|(name, stats)| (name.to_owned(), Self::of(&Distribution::of(stats))))
            .collect()
    }
}

/// What [`selected`](super::selected) shows.
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
