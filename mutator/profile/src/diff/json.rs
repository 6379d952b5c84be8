//! Comparisons as data.

use super::inside::{self, OfFunction};
use super::runs::Run;
use super::{Diff, NEW, OLD, Pair, Side};
use crate::profile::Counts;
use serde::Serialize;

/// The compared paths, those with the largest change of the sum first.
#[derive(Debug, Serialize)]
pub struct Differences<'d> {
    /// The name of the compared metric.
    metric: &'d str,
    /// The number of old and of new runs.
    runs: [usize; 2],
    /// Reasons that the sides may not be comparable.
    notes: Vec<String>,
    paths: Vec<OfPath<'d>>,
    /// The functions whose control flow both sides have counted. Empty if a side has several runs.
    inside: Vec<OfFunction<'d>>,
}

/// The comparison of one path. Pairs hold the old side, then the new one.
#[derive(Debug, Serialize)]
struct OfPath<'d> {
    /// The displayed name of the measured function.
    function: &'d str,
    /// The displayed names of the callers, the innermost one first.
    stack: Vec<String>,
    /// See [`PathEntry::complete`](crate::profile::PathEntry::complete).
    complete: bool,
    /// The metrics of the old side as in a profile, summed over the runs. `None` if that side does
    /// not have the path.
    old: Option<&'d Counts>,
    /// The metrics of the new side, summed over the runs. `None` if that side does not have the
    /// path.
    new: Option<&'d Counts>,
    /// The relative growth of the mean, or of the number of calls for `count`: 0.1 is 10 % more.
    /// `None` if a side lacks the path or the old side has no value above 0.
    change: Option<f64>,
    /// The mean of the metric on each side, in the metric's unit. `None` without measured calls.
    mean: [Option<f64>; 2],
    /// The standard error of each mean, in the metric's unit. `None` if it is not known.
    standard_error: [Option<f64>; 2],
    /// The mean of each run that has one, on each side. `None` if there is one run on each.
    #[serde(skip_serializing_if = "Option::is_none")]
    means: Option<[Vec<f64>; 2]>,
    /// The number of calls on each side that left by a tail call, over all runs.
    tail: [u64; 2],
    /// The number of calls on each side that at least one metric has not measured, over all runs.
    unmeasured: [u64; 2],
    /// The runs of each side that have not measured the function, numbered from 1.
    unmeasured_in: [Vec<usize>; 2],
    /// `p_value_alone`, adjusted for the number of compared paths.
    p_value: Option<f64>,
    /// The p-value of the change of the metric, for this path by itself. `None` if a side lacks the
    /// path or has too few values.
    p_value_alone: Option<f64>,
    /// The p-value of the change of the number of calls. With one run on each side, it assumes that
    /// calls are independent of each other. `None` if a side lacks the path or has too few values.
    p_value_count: Option<f64>,
}

/// The comparison as data.
pub fn json<'d>(diff: &'d Diff<'_>) -> Differences<'d> {
    Differences {
        metric: &diff.metric,
        runs: [diff.old.len(), diff.new.len()],
        notes: diff.notes(),
        paths: diff.paths.iter().map(|pair| diff.data(pair)).collect(),
        inside: inside::compared(diff),
    }
}

impl Diff<'_> {
    /// The side that is shown for a path: the new one if it has the path, else the old one.
    pub(super) fn shown<'d>(&self, pair: &'d Pair<'d>) -> Option<&'d Side<'d>> {
        pair.new.as_ref().or(pair.old.as_ref())
    }

    fn data<'d>(&'d self, pair: &'d Pair<'_>) -> OfPath<'d> {
        let shown = self.shown(pair);
        let sides = [pair.old.as_ref(), pair.new.as_ref()];
        let of = |side: Option<&Side<'d>>, what: fn(&Side<'d>, &str) -> Option<f64>| {
            side.and_then(|side| what(side, &self.metric))
        };
        let frames = shown.map(|side| {
            let frames = side.first.stack.iter().map(|&f| &side.profile.frames[f]);
            frames.map(|frame| side.profile.frame_name(frame)).collect()
        });
        let means =
            |side: Option<&Side<'d>>| side.map_or_else(Vec::new, |s| s.runs.values(Run::mean));
        OfPath {
            function: shown.map_or("", |side| {
                side.profile.functions[side.first.function].name.as_str()
            }),
            stack: frames.unwrap_or_default(),
            complete: shown.is_some_and(|side| side.first.complete),
            old: pair.old.as_ref().map(|side| &side.total.counts),
            new: pair.new.as_ref().map(|side| &side.total.counts),
            change: pair.growth(&self.metric),
            mean: sides.map(|side| of(side, Side::mean)),
            standard_error: sides.map(|side| of(side, Side::standard_error)),
            means: (!self.is_of_one_run()).then(|| sides.map(means)),
            tail: sides.map(|side| side.map_or(0, |side| side.total.tail)),
            unmeasured: sides.map(|side| side.map_or(0, |side| side.total.unmeasured)),
            unmeasured_in: [OLD, NEW].map(|side| pair.unmeasured_in(side)),
            p_value: pair.p,
            p_value_alone: pair.p_alone,
            p_value_count: pair.p_count,
        }
    }
}
