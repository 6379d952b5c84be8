//! Counts inside functions, compared: source lines and paths.

mod counted;
mod paths;
pub(super) mod table;

use super::Diff;
use super::matching;
use counted::{Counted, Line, counted};
use paths::Paths;
use serde::Serialize;
use std::collections::HashSet;

/// The comparison of the counts inside one function. Pairs hold the old side, then the new one.
#[derive(Debug, Serialize)]
pub(super) struct OfFunction<'d> {
    /// The displayed name of the function in the new profile.
    function: &'d str,
    activations: [u64; 2],
    /// The lines at which a block begins on one of the sides, in source order.
    lines: Vec<OfLine>,
    /// `None` if a side has not counted the paths of the function.
    #[serde(flatten)]
    paths: Option<Paths>,
}

/// The counts of one line.
#[derive(Debug, Serialize)]
struct OfLine {
    file: String,
    line: u32,
    counts: [u64; 2],
}

/// The functions whose control flow both sides have counted. Empty if a side has several runs.
pub(super) fn compared<'d>(diff: &Diff<'d>) -> Vec<OfFunction<'d>> {
    let ([old], [new]) = (diff.old.as_slice(), diff.new.as_slice()) else {
        return Vec::new();
    };
    let common = matching::common([*old, *new].into_iter());
    let was = counted(old, &common);
    let now = counted(new, &common).into_iter();
    now.filter_map(|(site, now)| Some(of_function([was.get(&site)?, &now])))
        .collect()
}

fn of_function<'d>(sides: [&Counted<'d>; 2]) -> OfFunction<'d> {
    let [_, new] = sides;
    let lines: HashSet<&Line> = sides.iter().flat_map(|side| side.lines.keys()).collect();
    let mut lines: Vec<&Line> = lines.into_iter().collect();
    lines.sort_unstable();
    let lines = lines.into_iter().map(|line| OfLine {
        file: line.0.clone(),
        line: line.1,
        counts: sides.map(|side| side.lines.get(line).copied().unwrap_or(0)),
    });
    OfFunction {
        function: &new.profile.functions[new.graphs[0].function].name,
        activations: sides.map(|side| side.activations),
        lines: lines.collect(),
        paths: paths::compared(sides),
    }
}
