//! The differences as data.

use super::statistics::standard_error;
use super::{Diff, Pair, Side};
use crate::profile::{Counts, Profile};
use serde::Serialize;

/// All of them, those with the largest change of the sum first.
#[derive(Debug, Serialize)]
pub struct Differences<'d> {
    metric: &'d str,
    paths: Vec<OfPath<'d>>,
}

#[derive(Debug, Serialize)]
struct OfPath<'d> {
    function: &'d str,
    /// The nearest first.
    stack: Vec<String>,
    complete: bool,
    /// Each side's metrics as in a profile; none where the path is not there.
    old: Option<&'d Counts>,
    new: Option<&'d Counts>,
    /// What the mean has grown by, or the calls, as a part of what it was.
    change: Option<f64>,
    /// Of the metric.
    mean: [Option<f64>; 2],
    standard_error: [Option<f64>; 2],
    /// Calls left by a tail call, and calls that a metric has not measured.
    tail: [u64; 2],
    unmeasured: [u64; 2],
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
        paths: diff.paths.iter().map(|pair| diff.data(pair)).collect(),
    }
}

impl Diff<'_> {
    /// The profile that a path is shown from, and the path there: the newer where both have it.
    pub(super) fn shown<'d>(&'d self, pair: &'d Pair<'_>) -> Option<(&'d Profile, &'d Side<'d>)> {
        let new = pair.new.as_ref().map(|side| (self.new, side));
        new.or(pair.old.as_ref().map(|side| (self.old, side)))
    }

    fn data<'d>(&'d self, pair: &'d Pair<'_>) -> OfPath<'d> {
        let shown = self.shown(pair);
        let sides = [pair.old.as_ref(), pair.new.as_ref()];
        let values = |side: &Side<'d>| side.total.values.get(&self.metric).cloned();
        let values = sides.map(|side| side.and_then(values));
        let frames = shown.map(|(profile, side)| {
            let frames = side.first.stack.iter().map(|&f| &profile.frames[f]);
            frames.map(|frame| profile.frame_name(frame)).collect()
        });
        OfPath {
            function: shown.map_or("", |(profile, side)| {
                profile.functions[side.first.function].name.as_str()
            }),
            stack: frames.unwrap_or_default(),
            complete: shown.is_some_and(|(_, side)| side.first.complete),
            old: pair.old.as_ref().map(|side| &side.total.counts),
            new: pair.new.as_ref().map(|side| &side.total.counts),
            change: pair.growth(&self.metric),
            mean: [0, 1].map(|i| values[i].as_ref()?.mean()),
            standard_error: [0, 1].map(|i| standard_error(values[i].as_ref()?)),
            tail: sides.map(|side| side.map_or(0, |side| side.total.tail)),
            unmeasured: sides.map(|side| side.map_or(0, |side| side.total.unmeasured)),
            p_value: pair.p,
            p_value_alone: pair.p_alone,
            p_value_count: pair.p_count,
        }
    }
}
