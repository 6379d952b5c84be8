//! Numbers of acyclic paths, after Ball and Larus ("Efficient Path Profiling", MICRO-29, 1996).
//!
//! A path begins at an edge from the virtual entry or at the header of a loop. It ends at an edge
//! to the virtual exit or at a cut edge. The back edges are cut, which leaves a graph without
//! cycles, and in functions of many paths the edges into loops as well ([`Cut`](super::Cut)). A cut
//! edge `v -> w` is replaced by two dummy edges, `entry -> w` and `v -> exit`. All cut edges to `w`
//! share the first one. Each has its own second one, so that the number of a path also states the
//! cut edge at its end. In a loop that is not reducible, the back edges are the retreating edges of
//! a depth-first search.
//!
//! ```text
//! paths(exit) = 1
//! paths(v)    = sum of paths(w) over the edges v -> w
//! value(e)    = sum of paths(w) over the edges v -> w before e
//! number      = sum of value(e) over the edges of the path
//! ```
//!
//! A departure from inside a call ([`EdgeKind::Left`]) ends no path.

use std::collections::BTreeSet;
use std::fmt;

use super::graph::{BlockId, Edge, EdgeId, EdgeKind, Node, index_of};

/// The acyclic paths of one function with their numbers.
#[derive(Clone, Debug)]
pub struct PathTable {
    /// For each node, its edges in ascending order of their values.
    steps: Vec<Vec<Step>>,
    paths: u64,
}

/// An edge of the graph without cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    pub(super) to: Node,
    pub(super) value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// An edge of the graph.
    Edge(EdgeId),
    /// The dummy edge from the entry to a header.
    Header(BlockId),
    /// The dummy edge from the source of a cut edge to the exit.
    Cut(EdgeId),
}

/// An acyclic path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The beginning of the path.
    pub start: Start,
    /// The blocks of the path, in order.
    pub blocks: Vec<BlockId>,
    /// The edges between these blocks, in order.
    pub edges: Vec<EdgeId>,
    /// The end of the path.
    pub end: End,
}

/// The beginning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Start {
    /// An edge from the virtual entry.
    Entry(EdgeId),
    /// The header of a loop, after a cut edge.
    Header(BlockId),
}

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// An edge to the virtual exit.
    Exit(EdgeId),
    /// A cut edge.
    Cut(EdgeId),
}

/// There are 2^64 or more paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPaths;

impl PathTable {
    /// Numbers the paths of a graph of `blocks` blocks with these edges. `is_cut` says which edges
    /// are cut; the others must make no cycle.
    ///
    /// # Errors
    /// There are too many paths.
    pub fn of(
        blocks: usize,
        edges: &[Edge],
        is_cut: impl Fn(EdgeId) -> bool,
    ) -> Result<Self, TooManyPaths> {
        let mut table = Self {
            steps: vec![Vec::new(); blocks + 2],
            paths: 0,
        };
        let new = |kind, to| Step { kind, to, value: 0 };
        let mut headers = BTreeSet::new();
        for (id, edge) in (0..).map(EdgeId).zip(edges) {
            let step = if edge.kind == EdgeKind::Left {
                continue;
            } else if is_cut(id) {
                headers.extend(edge.to.block());
                new(StepKind::Cut(id), Node::Exit)
            } else {
                new(StepKind::Edge(id), edge.to)
            };
            let from = table.index(edge.from);
            table.steps[from].push(step);
        }
        let dummies = headers
            .into_iter()
            .map(|header| new(StepKind::Header(header), Node::Block(header)));
        let entry = table.index(Node::Entry);
        table.steps[entry].extend(dummies);
        table.set_values()?;
        Ok(table)
    }

    /// The number of paths. The paths have the numbers from 0 up to it.
    pub fn paths(&self) -> u64 {
        self.paths
    }

    /// The number of paths from `node` to their ends.
    pub(super) fn paths_from(&self, node: Node) -> u64 {
        let (mut before, mut at) = (0, node);
        while let Some(last) = self.steps[self.index(at)].last() {
            before += last.value;
            at = last.to;
        }
        before + u64::from(at == Node::Exit)
    }

    /// For each node, its edges in ascending order of their values.
    pub(super) fn steps(&self) -> &[Vec<Step>] {
        &self.steps
    }

    /// The path with the number `number`. `None` if there are not so many paths.
    pub fn decode(&self, number: u64) -> Option<Path> {
        if number >= self.paths {
            return None;
        }
        let mut rest = number;
        let mut step = self.step(Node::Entry, &mut rest)?;
        let start = match step.kind {
            StepKind::Edge(edge) => Start::Entry(edge),
            StepKind::Header(header) => Start::Header(header),
            StepKind::Cut(_) => return None,
        };
        let (mut blocks, mut edges) = (Vec::new(), Vec::new());
        loop {
            blocks.push(step.to.block()?);
            step = self.step(step.to, &mut rest)?;
            let end = match (step.kind, step.to) {
                (StepKind::Cut(edge), _) => End::Cut(edge),
                (StepKind::Edge(edge), Node::Exit) => End::Exit(edge),
                (StepKind::Edge(edge), _) => {
                    edges.push(edge);
                    continue;
                }
                (StepKind::Header(_), _) => return None,
            };
            return Some(Path {
                start,
                blocks,
                edges,
                end,
            });
        }
    }

    /// The next step from `node` on the path for which the sum of the values is `rest`. Subtracts
    /// the step's value from `rest`.
    fn step(&self, node: Node, rest: &mut u64) -> Option<Step> {
        let steps = &self.steps[self.index(node)];
        let after = steps.partition_point(|step| step.value <= *rest);
        let step = *steps.get(after.checked_sub(1)?)?;
        *rest -= step.value;
        Some(step)
    }

    fn index(&self, node: Node) -> usize {
        index_of(node, self.steps.len() - 1)
    }

    /// Sets the values of all steps, and the number of paths from the entry.
    fn set_values(&mut self) -> Result<(), TooManyPaths> {
        let mut paths = vec![0_u64; self.steps.len()];
        paths[self.index(Node::Exit)] = 1;
        for node in self.successors_first() {
            let mut sum = 0_u64;
            for step in 0..self.steps[node].len() {
                let to = self.index(self.steps[node][step].to);
                self.steps[node][step].value = sum;
                sum = sum.checked_add(paths[to]).ok_or(TooManyPaths)?;
            }
            paths[node] += sum;
        }
        self.paths = paths[self.index(Node::Entry)];
        Ok(())
    }

    /// The nodes that the entry leads to, each after its successors.
    fn successors_first(&self) -> Vec<usize> {
        let mut found = Vec::new();
        let mut is_seen = vec![false; self.steps.len()];
        let mut path = vec![(self.index(Node::Entry), 0)];
        while let Some((node, next)) = path.last_mut() {
            let step = self.steps[*node].get(*next);
            *next += 1;
            match step.map(|step| self.index(step.to)) {
                Some(to) => {
                    if !std::mem::replace(&mut is_seen[to], true) {
                        path.push((to, 0));
                    }
                }
                None => {
                    found.push(*node);
                    path.pop();
                }
            }
        }
        found
    }
}

impl fmt::Display for TooManyPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the function has 2^64 or more paths")
    }
}

impl std::error::Error for TooManyPaths {}
