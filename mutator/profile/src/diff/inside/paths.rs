//! Counts of the acyclic paths of a function, compared by the source lines along each path.

use super::counted::Counted;
use crate::profile::{Inside, Profile, TakenPath, position};
use crate::report::places::{Places, file_of};
use serde::Serialize;
use std::collections::BTreeMap;

/// The start of a path, its lines, and its end, as in a report.
type Words = Vec<String>;

/// The comparison of the paths of one function. Pairs hold the old side, then the new one.
#[derive(Debug, Serialize)]
pub(super) struct Paths {
    /// The paths that one of the sides has taken, those with the largest change first.
    pub(super) paths: Vec<OfPath>,
    /// The paths taken through blocks without a line. They are in none of `paths`, because the
    /// graphs of the two sides differ.
    pub(super) paths_without_lines: [u64; 2],
    /// The paths that were taken to their ends and are in no count of the profile.
    pub(super) paths_not_counted: [u64; 2],
}

/// The counts of the paths on the same lines.
#[derive(Debug, Serialize)]
pub(super) struct OfPath {
    pub(super) path: Words,
    pub(super) counts: [u64; 2],
}

/// The paths of one side.
#[derive(Default)]
struct Side {
    /// The counts by words. Paths on the same lines are added up.
    counts: BTreeMap<Words, u64>,
    without_lines: u64,
    not_counted: u64,
}

/// Compares the paths of a function. `None` if a side has not counted them.
///
/// Offsets of blocks without a line mean the same code only if the graphs are equal.
pub(super) fn compared(sides: [&Counted<'_>; 2]) -> Option<Paths> {
    let is_counted = |side: &Counted<'_>| side.graphs.iter().any(|g| g.path_totals.is_some());
    if !sides.into_iter().all(is_counted) {
        return None;
    }
    let are_equal = have_equal_graphs(sides);
    let has_same_file = {
        let [old, new] = sides.map(|side| position(file_of(side.graphs[0]), None));
        old == new
    };
    let [old, new] = sides.map(|side| Side::of(side, has_same_file, are_equal));
    let mut words: Vec<Words> = old
        .counts
        .keys()
        .chain(new.counts.keys())
        .cloned()
        .collect();
    words.sort_unstable();
    words.dedup();
    // If all paths of a side lack lines, those of the other would all seem to be new or gone.
    let is_unknown = |side: &Side| side.counts.is_empty() && side.without_lines > 0;
    if is_unknown(&old) || is_unknown(&new) {
        words.clear();
    }
    let count = |side: &Side, path: &Words| side.counts.get(path).copied().unwrap_or(0);
    let paths = words.into_iter().map(|path| OfPath {
        counts: [count(&old, &path), count(&new, &path)],
        path,
    });
    let mut paths: Vec<OfPath> = paths.collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.counts[0].abs_diff(path.counts[1])));
    Some(Paths {
        paths,
        paths_without_lines: [old.without_lines, new.without_lines],
        paths_not_counted: [old.not_counted, new.not_counted],
    })
}

impl Side {
    /// Lines of the function's file have no file name if both sides have the same.
    fn of(counted: &Counted<'_>, has_same_file: bool, are_equal: bool) -> Self {
        let mut side = Self::default();
        for graph in &counted.graphs {
            let own = file_of(graph).filter(|_| has_same_file);
            let places = Places::in_file(counted.profile, graph, own);
            for path in &graph.paths {
                let sum = if are_equal || has_lines(graph, path) {
                    side.counts.entry(places.words(path)).or_default()
                } else {
                    &mut side.without_lines
                };
                *sum = sum.saturating_add(path.count);
            }
            if let Some(totals) = graph.path_totals {
                let not_counted = totals.unknown.saturating_add(totals.uncounted);
                side.not_counted = side.not_counted.saturating_add(not_counted);
            }
        }
        side
    }
}

/// True if each block of the path has a line.
fn has_lines(graph: &Inside, path: &TakenPath) -> bool {
    let mut blocks = path.blocks.iter();
    blocks.all(|&block| graph.blocks[block].source().is_some())
}

/// True if all graphs of both sides are the same from the start of the function on.
fn have_equal_graphs(sides: [&Counted<'_>; 2]) -> bool {
    let start = |profile: &Profile, graph: &Inside| profile.functions[graph.function].address;
    let [old, _] = sides;
    let first = old.graphs[0];
    let graphs = sides.into_iter().flat_map(|side| {
        let graphs = side.graphs.iter();
        graphs.map(|graph| (*graph, start(side.profile, graph)))
    });
    let from = start(old.profile, first);
    let mut graphs = graphs.map(|(graph, at)| graph.has_graph_of(first, at.wrapping_sub(from)));
    graphs.all(|is_equal| is_equal)
}
