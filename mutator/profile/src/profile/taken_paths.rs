//! The acyclic paths inside a function that were taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An acyclic path: a sequence of blocks from the entry or the head of a loop to an exit or back to
/// the head of a loop (Ball and Larus, "Efficient Path Profiling", MICRO-29, 1996).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenPath {
    /// The number of the path among those of its function, from 0.
    pub number: u64,
    /// The beginning of the path. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<PathStart>,
    /// The blocks of the path in order: indexes into [`Inside::blocks`](super::Inside::blocks).
    pub blocks: Vec<usize>,
    /// The end of the path. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<PathEnd>,
    /// The number of times that the path was taken to its end.
    pub count: u64,
}

/// The beginning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathStart {
    /// A call of the function, or another arrival from outside.
    Entry,
    /// The head of a loop, after an iteration, or after a path that ended there
    /// ([`PathTotals::split`]).
    Loop,
}

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathEnd {
    /// A departure from the function.
    Exit,
    /// Back to the head of a loop.
    Loop,
    /// To the head of a loop, from outside of it ([`PathTotals::split`]).
    Enter,
}

/// The sums over all paths of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTotals {
    /// The number of paths that the function has.
    pub possible: u64,
    /// True if paths end where a loop is entered, because there are too many otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub split: bool,
    /// The number of activations that began on a path.
    pub begun: u64,
    /// The number of paths that were taken to their ends and are in no count: their activations had
    /// begun before the counting.
    #[serde(default)]
    pub unknown: u64,
    /// The number of paths that were taken to their ends and are in no count, because the session
    /// had no room for so many different ones.
    #[serde(default)]
    pub uncounted: u64,
}

/// Combines the counts of the same paths, and keeps those that are not 0, in the order of their
/// numbers.
pub(super) fn combine(own: &mut Vec<TakenPath>, others: &[TakenPath], of: fn(u64, u64) -> u64) {
    let paths = std::mem::take(own).into_iter();
    let mut all: BTreeMap<u64, TakenPath> = paths.map(|path| (path.number, path)).collect();
    for other in others {
        let path = all.entry(other.number).or_insert_with(|| TakenPath {
            count: 0,
            ..other.clone()
        });
        path.count = of(path.count, other.count);
    }
    own.extend(all.into_values().filter(|path| path.count > 0));
}

impl PathTotals {
    /// Combines each sum with that of `other`.
    pub(super) fn combine(&mut self, other: &Self, of: fn(u64, u64) -> u64) {
        self.begun = of(self.begun, other.begun);
        self.unknown = of(self.unknown, other.unknown);
        self.uncounted = of(self.uncounted, other.uncounted);
    }
}
