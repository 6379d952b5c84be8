//! The acyclic paths inside a function that were taken.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::counts::TimerStats;

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
    /// The call paths on which it was taken, if the paths are timed. In the file, each has an entry
    /// of its own.
    #[serde(skip)]
    pub contexts: Vec<PathContext>,
}

impl TakenPath {
    /// The sum of its times on all call paths, and their mean, in nanoseconds. `None` if none was
    /// measured.
    pub fn wall(&self) -> Option<(i128, f64)> {
        let timed = self.contexts.iter();
        let timed = timed.filter_map(|context| context.wall.as_ref());
        let timed = timed.map(|wall| (wall.sum, wall.values()));
        let (sum, count) = timed.fold((0_i128, 0_u64), |(sum, count), (wall, n)| {
            (sum.saturating_add(wall), count.saturating_add(n))
        });
        (count > 0).then(|| (sum, sum as f64 / count as f64))
    }
}

/// A call path on which a path inside the function was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathContext {
    /// Index into [`Profile::paths`](super::Profile::paths).
    pub path: usize,
    /// The number of times that the path inside was taken to its end, and timed.
    pub count: u64,
    /// The times from its start to its end. `None` if the time was not measured.
    pub wall: Option<Box<TimerStats>>,
}

/// An entry of the file: a path inside a function, on one call path if the paths are timed.
#[derive(Serialize, Deserialize)]
struct InFile {
    #[serde(flatten)]
    of: TakenPath,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wall: Option<Box<TimerStats>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<usize>,
}

/// Writes the paths inside a function. A path that was taken on several call paths has several
/// entries, whose counts add up to its own.
pub(super) fn write_all<S: Serializer>(paths: &[TakenPath], to: S) -> Result<S::Ok, S::Error> {
    let entries = paths.iter().flat_map(|of| {
        let entry = |count, wall, path| InFile {
            of: TakenPath {
                number: of.number,
                start: of.start,
                blocks: of.blocks.clone(),
                end: of.end,
                count,
                contexts: Vec::new(),
            },
            wall,
            path,
        };
        let contexts = of.contexts.iter();
        let timed = contexts
            .clone()
            .fold(0, |sum: u64, c| sum.saturating_add(c.count));
        let others = of.count.saturating_sub(timed);
        let others = (others > 0 || of.contexts.is_empty()).then(|| entry(others, None, None));
        contexts
            .map(|c| entry(c.count, c.wall.clone(), Some(c.path)))
            .chain(others)
            .collect::<Vec<InFile>>()
    });
    to.collect_seq(entries)
}

/// Reads the entries of [`write_all`].
pub(super) fn read_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TakenPath>, D::Error> {
    let mut all: Vec<TakenPath> = Vec::new();
    let mut known: HashMap<u64, usize> = HashMap::new();
    for InFile { of, wall, path } in Vec::<InFile>::deserialize(from)? {
        let at = *known.entry(of.number).or_insert(all.len());
        if at == all.len() {
            all.push(TakenPath {
                count: 0,
                ..of.clone()
            });
        }
        let whole = &mut all[at];
        whole.count = whole.count.saturating_add(of.count);
        whole.contexts.extend(path.map(|path| PathContext {
            path,
            count: of.count,
            wall,
        }));
    }
    Ok(all)
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
            contexts: Vec::new(),
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
