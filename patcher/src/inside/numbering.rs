//! Numbers of acyclic paths, after Ball and Larus ("Efficient Path Profiling", MICRO-29, 1996).
//!
//! The increments move the values to the chords of a spanning tree, which has the edges with the
//! highest expected frequency (Ball, "Efficiently Counting Program Events with Support for On-line
//! Queries", ACM TOPLAS 16(5), 1994). The sum over each complete path stays the same.

use std::cmp::Reverse;

use super::cut::Cut;
use super::graph::{EdgeId, Graph, Node};
use super::loops::Loops;
use super::path_table::{Path, PathTable, Step, StepKind, TooManyPaths};
use super::place::Place;
use super::union::Union;
use super::weights::Weights;

/// The numbering of the acyclic paths of one function.
#[derive(Clone, Debug)]
pub struct Numbering {
    table: PathTable,
    /// For each node, what the sum over the values has more than that over the increments.
    potentials: Vec<u64>,
    /// For each edge of the graph, the action of a transfer along it.
    actions: Vec<Action>,
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
    /// `count[r + end] += 1; r = start`: a cut edge.
    Restart {
        /// The last increment of the path that ends.
        end: u64,
        /// The path sum of the path that begins.
        start: u64,
    },
}

impl Numbering {
    /// Numbers the paths of `graph` without the edges of `cut`.
    ///
    /// `measured` has a count for each edge; edges after its end have a count of 0. The increments
    /// are on edges with low counts, and among equal ones in few loops.
    pub fn of(
        graph: &Graph,
        loops: &Loops,
        cut: &Cut,
        measured: Option<&[u64]>,
    ) -> Result<Self, TooManyPaths> {
        let is_cut = |edge| cut.is_cut(edge);
        let mut numbering = Self {
            table: PathTable::of(graph.blocks().len(), graph.edges(), is_cut)?,
            potentials: Vec::new(),
            actions: Vec::new(),
        };
        let weights = Weights::new(graph, loops, measured);
        numbering.potentials = numbering.potentials(graph, &weights);
        numbering.actions = numbering.increments(graph, cut);
        Ok(numbering)
    }

    /// What has to be added to the path sum before `node` to get the number of the path: the lowest
    /// such number and the highest one, which the last path from `node` has. Modulo 2^64.
    pub(super) fn to_add(&self, graph: &Graph, node: Node) -> (u64, u64) {
        let least = self.potentials[graph.index(node)];
        let others = self.table.paths_from(node).saturating_sub(1);
        (least, least.wrapping_add(others))
    }

    /// The number of paths. The paths have the numbers from 0 up to it.
    pub fn paths(&self) -> u64 {
        self.table.paths()
    }

    /// The path with the number `number`. `None` if there are not so many paths.
    pub fn decode(&self, number: u64) -> Option<Path> {
        self.table.decode(number)
    }

    /// The action of a transfer along `edge`.
    pub fn action(&self, edge: EdgeId) -> Action {
        self.actions[edge.index()]
    }

    /// The actions of all edges, in the order of [`Graph::edges`].
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Moves the values to the chords of a spanning tree.
    ///
    /// Each node has a potential: `potential(w) = potential(v) + value(e)` for an edge `e` from `v`
    /// to `w` on the tree. The increment of any edge from `v` to `w` is then `potential(v) +
    /// value(e) - potential(w)`. Entry and exit have the same potential, so the sum of the
    /// increments over a complete path is the sum of the values.
    fn increments(&self, graph: &Graph, cut: &Cut) -> Vec<Action> {
        let potential = &self.potentials;
        let mut actions = vec![Action::Add(0); graph.edges().len()];
        let mut starts = vec![0_u64; graph.nodes()];
        for (from, steps) in self.table.steps().iter().enumerate() {
            for step in steps {
                let to = graph.index(step.to);
                let sum = potential[from].wrapping_add(step.value);
                let increment = sum.wrapping_sub(potential[to]);
                match step.kind {
                    StepKind::Header(_) => starts[to] = increment,
                    StepKind::Cut(edge) => {
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
        for edge in cut.edges() {
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
        let all = self.table.steps().iter().enumerate();
        let all = all.flat_map(|(from, steps)| steps.iter().map(move |&step| (from, step)));
        let mut all: Vec<(usize, Step)> = all.collect();
        all.sort_by_cached_key(|&(from, step)| {
            let inner = match step.kind {
                StepKind::Edge(edge) if from != entry && step.to != Node::Exit => Some(edge),
                _ => None,
            };
            // An edge without a place needs the increment 0.
            let weight = |edge| (Reverse(Place::rank(graph, edge)), weights.of(edge));
            Reverse(inner.map(weight))
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
