//! The differences as data.

use super::runs::Run;
use super::{Diff, NEW, OLD, Pair, Side};
use crate::profile::Counts;
use serde::Serialize;

/// All of them, those with the largest change of the sum first.
#[derive(Debug, Serialize)]
pub struct Differences<'d> {
    metric: &'d str,
    /// Numbers of runs, old and new.
    runs: [usize; 2],
    /// Why the sides may not be comparable.
    notes: Vec<String>,
    paths: Vec<OfPath<'d>>,
}

#[derive(Debug, Serialize)]
struct OfPath<'d> {
    function: &'d str,
    /// The nearest first.
    stack: Vec<String>,
    complete: bool,
    /// Each side's metrics as in a profile, of all runs together. `None` if the path is not there.
    old: Option<&'d Counts>,
    new: Option<&'d Counts>,
    /// What the mean has grown by, or the calls, as a part of what it was.
    change: Option<f64>,
    /// Of the metric.
    mean: [Option<f64>; 2],
    standard_error: [Option<f64>; 2],
    /// The mean of each run, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    means: Option<[Vec<f64>; 2]>,
    /// Calls left by a tail call, and calls that a metric has not measured.
    tail: [u64; 2],
    unmeasured: [u64; 2],
    /// The runs of each side that have not measured the function, from 1.
    unmeasured_in: [Vec<usize>; 2],
    /// With all paths taken into account.
    p_value: Option<f64>,
    /// Of this path by itself.
    p_value_alone: Option<f64>,
    /// Of the numbers of calls, if these were independent.
    p_value_count: Option<f64>,
}

/// The differences as data.
pub fn json<'d>(diff: &'d Diff<'_>) -> Differences<'d> {
    Differences {
        metric: &diff.metric,
        runs: [diff.old.len(), diff.new.len()],
        notes: diff.notes(),
        paths: diff.paths.iter().map(|pair| diff.data(pair)).collect(),
    }
}

impl Diff<'_> {
    /// The side that a path is shown from: the new one if the path is there.
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
