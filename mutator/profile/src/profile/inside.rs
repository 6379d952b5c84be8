//! Control flow inside a function: its graph with the count of each block, edge and loop.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counts::TimerStats;
use super::function::is_zero;
use super::position::position;
use super::taken_paths::{self, PathEnd, PathTotals, TakenPath};

/// The counted control-flow graph of one function.
///
/// The count of a block equals the sum of its incoming edges and the sum of its outgoing edges. If
/// [`uncertain`](Self::uncertain) is above 0, each of these sums may differ from the count by at
/// most that number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Index into [`Profile::functions`](super::Profile::functions).
    pub function: usize,
    /// The number by which counts may be wrong: the activations in progress when counting began or
    /// ended, and the transfers during the reading. 0 if the counts are exact.
    #[serde(default)]
    pub uncertain: u64,
    /// The basic blocks, in address order. Behind them are hubs of jumps, with size 0.
    pub blocks: Vec<Block>,
    /// The edges between the blocks, and those that enter and leave the function.
    pub edges: Vec<Edge>,
    /// The loops.
    #[serde(default)]
    pub loops: Vec<Loop>,
    /// The paths that were taken, in the order of their numbers. Empty if paths were not counted.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "taken_paths::write_all",
        deserialize_with = "taken_paths::read_all"
    )]
    pub paths: Vec<TakenPath>,
    /// The sums over all paths. `None` if paths were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_totals: Option<PathTotals>,
}

/// A basic block. A call does not end it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The link-time address of the block's start, as stated in the module's file.
    pub address: u64,
    /// The block's size in bytes.
    pub size: u64,
    /// The source file of the first instruction. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of the first instruction in `file`. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The number of executions.
    pub count: u64,
}

/// A transfer of control between two blocks, into the function, or out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The source: an index into [`Inside::blocks`]. `None` for [`EdgeKind::Entry`].
    pub from: Option<usize>,
    /// The target: an index into [`Inside::blocks`]. `None` for [`EdgeKind::Exit`].
    pub to: Option<usize>,
    /// The cause of the transfer.
    pub kind: EdgeKind,
    /// True for an arrival or a departure inside a call that the block makes: an exception,
    /// `longjmp`, the end of the thread, or a call under way when the counting began or ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_call: bool,
    /// The number of transfers.
    pub count: u64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The cause of a transfer of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeKind {
    /// Control continues at the next instruction.
    Fall,
    /// A direct branch is taken.
    Taken,
    /// An entry of a jump table.
    Case,
    /// An arrival from outside of the function: a call of it, or an arrival at a landing pad.
    Entry,
    /// A departure from the function.
    Exit,
}

/// A loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loop {
    /// The header: an index into [`Inside::blocks`].
    pub header: usize,
    /// The loop around it: an index into [`Inside::loops`]. `None` for an outermost loop.
    pub parent: Option<usize>,
    /// The source file of the loop. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The first line of the loop in `file`. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The last line of the loop in `file`. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u32>,
    /// The number of times that control entered the loop from outside.
    pub entries: u64,
    /// The number of executions of the loop's header.
    pub iterations: u64,
    /// The trips that were counted: `[k, n]` are `n` entries of the loop with 2^k to 2^(k+1) - 1
    /// iterations, ascending. An entry that did not end, or whose loop was left by an exception or
    /// `longjmp`, is in none. Empty if trips were not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trips: Vec<(u32, u64)>,
    /// The number of trips that ended and are in no count: they had begun before the counting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_trips: u64,
    /// The times of the entries of the loop. `None` if it is not timed by itself
    /// ([`of_loop`](super::Function::of_loop)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Box<TimerStats>>,
}

impl Inside {
    /// The number of activations: the entry edges into the first entered block at or after
    /// `address`, the start of the function. Landing pads have entry edges, too. Arrivals inside a
    /// call are no activations: a `longjmp` has led there, or the counting began during the call.
    pub fn activations(&self, address: u64) -> u64 {
        let entered = || {
            let edges = self.edges.iter();
            edges.filter(|edge| edge.kind == EdgeKind::Entry && !edge.in_call)
        };
        let start = |edge: &Edge| Some(self.blocks.get(edge.to?)?.address.wrapping_sub(address));
        let first = entered().filter_map(start).min();
        let calls = entered().filter(|edge| start(edge) == first);
        calls.fold(0, |sum: u64, edge| sum.saturating_add(edge.count))
    }

    /// The number of entries of the function, at any of its blocks.
    pub fn arrivals(&self) -> u64 {
        let entered = self.edges.iter().filter(|edge| edge.from.is_none());
        entered.fold(0, |sum: u64, edge| sum.saturating_add(edge.count))
    }

    /// How far the counts may be off, and why. `None` if they are exact.
    pub fn doubt(&self) -> Option<String> {
        let uncertain = self.uncertain;
        // If only paths are counted, the counts are those on paths that have ended.
        let unfinished = self.unfinished();
        let others = "transfers at the start, the end, or the reading";
        match uncertain.checked_sub(unfinished) {
            _ if uncertain == 0 => None,
            Some(rest) if unfinished > 0 => {
                let what = if unfinished == 1 {
                    "path that did not end"
                } else {
                    "paths that did not end"
                };
                let rest = match rest {
                    0 => String::new(),
                    rest => format!(", and {rest} {others}"),
                };
                let left = "exception, longjmp, or still running";
                Some(format!(
                    "may be off by {uncertain}: {unfinished} {what} ({left}){rest}"
                ))
            }
            _ => Some(format!("may be off by {uncertain}: {others}")),
        }
    }

    /// True if nothing has been counted.
    pub fn is_without_counts(&self) -> bool {
        let begun = self.path_totals.map_or(0, |totals| totals.begun);
        begun == 0 && self.blocks.iter().all(|block| block.count == 0)
    }

    /// The number of activations that began on a path and did not end it: they were left by an
    /// exception, by `longjmp` or by the end of their thread, or were in progress at the end.
    pub fn unfinished(&self) -> u64 {
        let ended = self
            .paths
            .iter()
            .filter(|path| path.end == Some(PathEnd::Exit));
        let ended = ended.fold(0, |sum: u64, path| sum.saturating_add(path.count));
        let begun = self.path_totals.map_or(0, |totals| totals.begun);
        begun.saturating_sub(ended)
    }

    /// For each block, the number of executions of its first instruction. Activations that arrived
    /// inside a call of the block have not executed it.
    pub fn starts(&self) -> Vec<u64> {
        let mut starts: Vec<u64> = self.blocks.iter().map(|block| block.count).collect();
        for edge in self.edges.iter().filter(|edge| edge.in_call) {
            if let Some(start) = edge.to.and_then(|to| starts.get_mut(to)) {
                *start = start.saturating_sub(edge.count);
            }
        }
        starts
    }

    /// The count of each source line at which a block begins, by file and line. It is the largest
    /// count of the first instructions of these blocks. Their sum would count the head of a loop
    /// twice.
    pub fn lines(&self) -> BTreeMap<(&str, u32), u64> {
        let mut lines = BTreeMap::new();
        for (block, start) in self.blocks.iter().zip(self.starts()) {
            if let Some(source) = block.source() {
                let count: &mut u64 = lines.entry(source).or_default();
                *count = start.max(*count);
            }
        }
        lines
    }

    /// True if both have the same graph, and the same paths if both have paths: counts of one may
    /// be added to those of the other. The addresses of `self` are those of `other` plus `distance`
    /// (modulo 2^64), which is 0 within one file.
    pub(crate) fn has_graph_of(&self, other: &Self, distance: u64) -> bool {
        let is_same_loop = |(a, b): (&Loop, &Loop)| (a.header, a.parent) == (b.header, b.parent);
        let is_same_block = |(a, b): (&Block, &Block)| {
            (a.address, a.size) == (b.address.wrapping_add(distance), b.size)
        };
        let is_same_edge =
            |(a, b): (&Edge, &Edge)| (a.from, a.to, a.kind) == (b.from, b.to, b.kind);
        let numbering = |of: &Self| of.path_totals.map(|totals| (totals.possible, totals.split));
        let have_same_paths = match (numbering(self), numbering(other)) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        have_same_paths
            && self.blocks.len() == other.blocks.len()
            && self.edges.len() == other.edges.len()
            && self.loops.len() == other.loops.len()
            && self.blocks.iter().zip(&other.blocks).all(is_same_block)
            && self.edges.iter().zip(&other.edges).all(is_same_edge)
            && self.loops.iter().zip(&other.loops).all(is_same_loop)
    }

    /// Sets the source positions that are not known to those of `other`, which has the same graph.
    pub(crate) fn complete_positions(&mut self, other: &Self) {
        for (block, other) in self.blocks.iter_mut().zip(&other.blocks) {
            if block.line.is_none() {
                block.file.clone_from(&other.file);
                block.line = other.line;
            }
        }
        for (own, other) in self.loops.iter_mut().zip(&other.loops) {
            if own.line.is_none() {
                own.file.clone_from(&other.file);
                (own.line, own.end_line) = (other.line, other.end_line);
            }
        }
    }

    /// Combines each count with that of `other`, which has the same graph. The numbers of
    /// uncertain activations add up.
    pub(crate) fn combine(&mut self, other: &Self, of: fn(u64, u64) -> u64) {
        for (block, other) in self.blocks.iter_mut().zip(&other.blocks) {
            block.count = of(block.count, other.count);
        }
        for (edge, other) in self.edges.iter_mut().zip(&other.edges) {
            edge.count = of(edge.count, other.count);
        }
        for (own, other) in self.loops.iter_mut().zip(&other.loops) {
            own.entries = of(own.entries, other.entries);
            own.iterations = of(own.iterations, other.iterations);
            own.unknown_trips = of(own.unknown_trips, other.unknown_trips);
            let mut trips: BTreeMap<u32, u64> = own.trips.iter().copied().collect();
            for &(power, count) in &other.trips {
                let sum = trips.entry(power).or_default();
                *sum = of(*sum, count);
            }
            own.trips = trips.into_iter().filter(|&(_, count)| count > 0).collect();
        }
        taken_paths::combine(&mut self.paths, &other.paths, of);
        self.path_totals = match (self.path_totals, other.path_totals) {
            (Some(mut own), Some(other)) => {
                own.combine(&other, of);
                Some(own)
            }
            (own, other) => own.or(other),
        };
        self.uncertain = self.uncertain.saturating_add(other.uncertain);
    }
}

impl Block {
    /// The source file and line of the first instruction. `None` if one of them is not known.
    pub fn source(&self) -> Option<(&str, u32)> {
        Some((self.file.as_deref()?, self.line.filter(|&line| line > 0)?))
    }
}

impl Loop {
    /// The source range as `FILE:LINE-LINE`, without the file's directory, or as `FILE:LINE` if it
    /// is one line. `None` if the first line is not known.
    pub fn range(&self) -> Option<String> {
        let line = self.line?;
        let first = position(self.file.as_deref(), Some(line))?;
        Some(match self.end_line.filter(|&end| end > line) {
            Some(end) => format!("{first}-{end}"),
            None => first,
        })
    }
}
