//! Numbers of acyclic paths, after Ball and Larus ("Efficient Path Profiling", MICRO-29, 1996).
//!
//! A path begins at an edge from the virtual entry or at the header of a loop. It ends at an edge
//! to the virtual exit or at a back edge. The back edges are cut, which leaves a graph without
//! cycles. A back edge `v -> w` is replaced by two dummy edges, `entry -> w` and `v -> exit`. All
//! back edges to `w` share the first one. Each has its own second one, so that the number of a path
//! also states the back edge at its end. In a loop that is not reducible, the back edges are the
//! retreating edges of a depth-first search.
//!
//! ```text
//! paths(exit) = 1
//! paths(v)    = sum of paths(w) over the edges v -> w
//! value(e)    = sum of paths(w) over the edges v -> w before e
//! number      = sum of value(e) over the edges of the path
//! ```
//!
//! The increments move the values to the chords of a spanning tree, which has the edges with the
//! highest expected frequency (Ball, "Efficiently Counting Program Events with Support for On-line
//! Queries", ACM TOPLAS 16(5), 1994). The sum over each complete path stays the same.

use std::cmp::Reverse;
use std::fmt;

use super::graph::{BlockId, EdgeId, Graph, Node};
use super::loops::Loops;
use super::union::Union;
use super::weights::Weights;

/// The numbering of the acyclic paths of one function.
#[derive(Clone, Debug)]
pub struct Numbering {
    /// For each node, its edges in ascending order of their values.
    steps: Vec<Vec<Step>>,
    /// For each edge of the graph, the action of a transfer along it.
    actions: Vec<Action>,
    paths: u64,
}

/// An edge of the graph without cycles.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: StepKind,
    to: Node,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepKind {
    /// An edge of the graph.
    Edge(EdgeId),
    /// The dummy edge from the entry to a header.
    Header(BlockId),
    /// The dummy edge from the source of a back edge to the exit.
    Back(EdgeId),
}

/// The change of the path sum `r` by a transfer along an edge. All arithmetic is modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// `r = start`: an edge from the virtual entry.
    Start(u64),
    /// `r += increment`. An edge of the spanning tree has the increment 0 and needs no code.
    Add(u64),
    /// `count[r + end] += 1`: an edge to the virtual exit.
    End(u64),
    /// `count[r + end] += 1; r = start`: a back edge.
    Restart {
        /// The last increment of the path that ends.
        end: u64,
        /// The path sum of the path that begins.
        start: u64,
    },
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
    /// The header of a loop, after a back edge.
    Header(BlockId),
}

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// An edge to the virtual exit.
    Exit(EdgeId),
    /// A back edge.
    Back(EdgeId),
}

/// There are 2^64 or more paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPaths;

impl Numbering {
    /// Numbers the paths of `graph`.
    ///
    /// `measured` has a count for each edge; edges after its end have a count of 0. The increments
    /// are on edges with low counts, and among equal ones in few loops.
    pub fn of(
        graph: &Graph,
        loops: &Loops,
        measured: Option<&[u64]>,
    ) -> Result<Self, TooManyPaths> {
        let mut numbering = Self {
            steps: steps(graph, loops),
            actions: Vec::new(),
            paths: 0,
        };
        numbering.paths = set_values(graph, &mut numbering.steps)?;
        numbering.actions =
            numbering.increments(graph, loops, &Weights::new(graph, loops, measured));
        Ok(numbering)
    }

    /// The number of paths. The paths have the numbers from 0 up to it.
    pub fn paths(&self) -> u64 {
        self.paths
    }

    /// The action of a transfer along `edge`.
    pub fn action(&self, edge: EdgeId) -> Action {
        self.actions[edge.index()]
    }

    /// The actions of all edges, in the order of [`Graph::edges`].
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The path with the number `number` in `graph`, from which the numbering was made. `None` if
    /// there are not so many paths.
    pub fn decode(&self, graph: &Graph, number: u64) -> Option<Path> {
        if number >= self.paths {
            return None;
        }
        let mut rest = number;
        let mut step = self.step(graph, Node::Entry, &mut rest)?;
        let start = match step.kind {
            StepKind::Edge(edge) => Start::Entry(edge),
            StepKind::Header(header) => Start::Header(header),
            StepKind::Back(_) => return None,
        };
        let (mut blocks, mut edges) = (Vec::new(), Vec::new());
        loop {
            blocks.push(step.to.block()?);
            step = self.step(graph, step.to, &mut rest)?;
            let end = match (step.kind, step.to) {
                (StepKind::Back(edge), _) => End::Back(edge),
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
    fn step(&self, graph: &Graph, node: Node, rest: &mut u64) -> Option<Step> {
        let steps = &self.steps[graph.index(node)];
        let after = steps.partition_point(|step| step.value <= *rest);
        let step = *steps.get(after.checked_sub(1)?)?;
        *rest -= step.value;
        Some(step)
    }

    /// Moves the values to the chords of a spanning tree.
    ///
    /// Each node has a potential: `potential(w) = potential(v) + value(e)` for an edge `e` from `v`
    /// to `w` on the tree. The increment of any edge from `v` to `w` is then `potential(v) +
    /// value(e) - potential(w)`. Entry and exit have the same potential, so the sum of the
    /// increments over a complete path is the sum of the values.
    fn increments(&self, graph: &Graph, loops: &Loops, weights: &Weights<'_>) -> Vec<Action> {
        let potential = self.potentials(graph, weights);
        let mut actions = vec![Action::Add(0); graph.edges().len()];
        let mut starts = vec![0_u64; graph.nodes()];
        for (from, steps) in self.steps.iter().enumerate() {
            for step in steps {
                let to = graph.index(step.to);
                let sum = potential[from].wrapping_add(step.value);
                let increment = sum.wrapping_sub(potential[to]);
                match step.kind {
                    StepKind::Header(_) => starts[to] = increment,
                    StepKind::Back(edge) => {
                        actions[edge.index()] = Action::Restart {
                            end: increment,
                            start: 0,
                        };
                    }
                    StepKind::Edge(edge) if from == graph.index(Node::Entry) => {
                        actions[edge.index()] = Action::Start(increment);
                    }
                    StepKind::Edge(edge) if step.to == Node::Exit => {
                        actions[edge.index()] = Action::End(increment);
                    }
                    StepKind::Edge(edge) => actions[edge.index()] = Action::Add(increment),
                }
            }
        }
        for edge in graph.edge_ids().filter(|&edge| loops.is_back(edge)) {
            if let Action::Restart { start, .. } = &mut actions[edge.index()] {
                *start = starts[graph.index(graph.edge(edge).to)];
            }
        }
        actions
    }

    /// The potential of each node by a maximum spanning tree.
    ///
    /// The steps from the entry and to the exit have the lowest weight: their increments are
    /// constants of code that is needed anyway.
    fn potentials(&self, graph: &Graph, weights: &Weights<'_>) -> Vec<u64> {
        let (entry, exit) = (graph.index(Node::Entry), graph.index(Node::Exit));
        let all = self.steps.iter().enumerate();
        let all = all.flat_map(|(from, steps)| steps.iter().map(move |&step| (from, step)));
        let mut all: Vec<(usize, Step)> = all.collect();
        all.sort_by_cached_key(|&(from, step)| {
            let inner = match step.kind {
                StepKind::Edge(edge) if from != entry && step.to != Node::Exit => Some(edge),
                _ => None,
            };
            Reverse(inner.map(|edge| weights.of(edge)))
        });
        let mut sets = Union::new(graph.nodes());
        sets.merge_into(exit, entry);
        // For each node, its neighbors on the tree with the differences to its potential.
        let mut tree = vec![Vec::new(); graph.nodes()];
        tree[entry].push((exit, 0));
        for (from, step) in all {
            let to = graph.index(step.to);
            if sets.merge_into(from, to) {
                tree[from].push((to, step.value));
                tree[to].push((from, step.value.wrapping_neg()));
            }
        }
        let mut potential = vec![None; graph.nodes()];
        let mut work = vec![(entry, 0_u64)];
        while let Some((node, value)) = work.pop() {
            if potential[node].replace(value).is_none() {
                let next = tree[node].iter();
                let next = next.map(|&(to, by)| (to, value.wrapping_add(by)));
                work.extend(next.filter(|&(to, _)| potential[to].is_none()));
            }
        }
        potential
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect()
    }
}

/// The edges of the graph without cycles, for each node.
fn steps(graph: &Graph, loops: &Loops) -> Vec<Vec<Step>> {
    let new = |kind, to| Step { kind, to, value: 0 };
    let mut steps: Vec<Vec<Step>> = vec![Vec::new(); graph.nodes()];
    for id in graph.edge_ids() {
        let edge = graph.edge(id);
        steps[graph.index(edge.from)].push(if loops.is_back(id) {
            new(StepKind::Back(id), Node::Exit)
        } else {
            new(StepKind::Edge(id), edge.to)
        });
    }
    for found in loops.loops() {
        let dummy = new(StepKind::Header(found.header), Node::Block(found.header));
        steps[graph.index(Node::Entry)].push(dummy);
    }
    steps
}

/// Sets the values of all steps. Returns the number of paths from the entry.
fn set_values(graph: &Graph, steps: &mut [Vec<Step>]) -> Result<u64, TooManyPaths> {
    let mut paths = vec![0_u64; graph.nodes()];
    paths[graph.index(Node::Exit)] = 1;
    for node in successors_first(graph, steps) {
        let mut sum = 0_u64;
        for step in &mut steps[node] {
            step.value = sum;
            sum = sum
                .checked_add(paths[graph.index(step.to)])
                .ok_or(TooManyPaths)?;
        }
        paths[node] += sum;
    }
    Ok(paths[graph.index(Node::Entry)])
}

/// The nodes that the entry leads to, each after its successors.
fn successors_first(graph: &Graph, steps: &[Vec<Step>]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_seen = vec![false; graph.nodes()];
    let mut path = vec![(graph.index(Node::Entry), 0)];
    while let Some((node, next)) = path.last_mut() {
        let step = steps[*node].get(*next);
        *next += 1;
        match step.map(|step| graph.index(step.to)) {
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

impl fmt::Display for TooManyPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the function has 2^64 or more paths")
    }
}

impl std::error::Error for TooManyPaths {}
