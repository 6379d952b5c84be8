//! Expected frequencies of edges.

use std::collections::HashSet;

use super::depth_first::DepthFirst;
use super::graph::{BlockEnd, BlockId, Edge, EdgeId, EdgeKind, Graph, Node};
use super::loops::{LoopId, Loops};
use super::place::Place;

/// The assumed number of iterations of a loop.
const ITERATIONS: f64 = 10.0;
/// The assumed frequency of an arrival other than by a call, such as of an exception.
const ARRIVALS: f64 = 0.01;
/// The assumed frequency of a jump to code out of line, to that of the other way. Compilers place
/// code so that the frequent way falls through.
const OUT_OF_LINE: f64 = 0.5;
/// The assumed frequency of a jump past a `switch`, to that of the other way.
const PAST_SWITCH: f64 = 0.02;
/// The resolution of frequencies: this number stands for one call of the function.
const UNIT: f64 = (1 << 20) as f64;

/// The number of blocks of a loop that probably runs from a copy.
const SMALL: u32 = 64;
/// The cost of a count in a small loop that needs a jump of its own, as a multiple of that of any
/// other. Outside of copies, each count needs a jump.
const JUMPING: u64 = 2;

/// The expected cost of a count on each edge: its frequency, or a multiple if it needs a jump.
pub(super) struct Weights<'a> {
    measured: Option<&'a [u64]>,
    /// The cost by the structure of the function alone.
    expected: Vec<u64>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(graph: &Graph, loops: &Loops, measured: Option<&'a [u64]>) -> Self {
        let mut expected = expected(graph, loops);
        let in_small_loops = in_small_loops(graph, loops);
        for (cost, id) in expected.iter_mut().zip(graph.edge_ids()) {
            // No instruction runs for this edge alone, so the count is beside the code.
            let is_beside = matches!(Place::of(graph, id), Some(Place::Branch(..)));
            let Edge { from, kind, .. } = graph.edge(id);
            let is_small = from
                .block()
                .is_some_and(|from| in_small_loops[from.index()]);
            if is_beside && is_small && kind == EdgeKind::Taken {
                *cost *= JUMPING;
            }
        }
        Self { measured, expected }
    }

    /// The measured weight of `edge`, then the estimate, which decides between equal ones.
    pub(super) fn of(&self, edge: EdgeId) -> (u64, u64) {
        let measured = self
            .measured
            .and_then(|weights| weights.get(edge.index()).copied());
        (measured.unwrap_or_default(), self.expected[edge.index()])
    }
}

/// For each block, true if all loops around it are small, and there is one.
fn in_small_loops(graph: &Graph, loops: &Loops) -> Vec<bool> {
    let outermost = |block: BlockId| {
        let innermost = loops.innermost(block)?;
        let around = std::iter::successors(Some(innermost), |id| loops.loops()[id.index()].parent);
        around.last()
    };
    let outermost: Vec<Option<LoopId>> = graph.block_ids().map(outermost).collect();
    let mut sizes = vec![0_u32; loops.loops().len()];
    for id in outermost.iter().flatten() {
        sizes[id.index()] += 1;
    }
    let is_small = |id: &Option<LoopId>| id.is_some_and(|id| sizes[id.index()] <= SMALL);
    outermost.iter().map(is_small).collect()
}

/// The expected frequencies of the edges. All ways out of a block are equally frequent, but code
/// that only jumps lead to is reached less often, and a loop is left after some iterations.
pub(super) fn expected(graph: &Graph, loops: &Loops) -> Vec<u64> {
    let headers: HashSet<Node> = loops
        .loops()
        .iter()
        .map(|l| Node::Block(l.header))
        .collect();
    let mut frequencies = vec![0.0; graph.edges().len()];
    for &node in DepthFirst::of(graph).postorder.iter().rev() {
        let arriving = graph.arriving(node).iter();
        let arriving = arriving.filter(|&&edge| !loops.is_back(edge));
        let mut frequency = match node {
            Node::Entry => 1.0,
            _ => arriving.map(|edge| frequencies[edge.index()]).sum(),
        };
        if headers.contains(&node) {
            frequency *= ITERATIONS;
        }
        let leaving = graph.leaving(node);
        let shares = leaving
            .iter()
            .map(|&id| share(graph, loops, graph.edge(id)));
        let shares: Vec<f64> = shares.collect();
        let sum: f64 = shares.iter().sum();
        for (edge, share) in leaving.iter().zip(shares) {
            frequencies[edge.index()] = frequency * share / sum;
        }
    }
    frequencies.into_iter().map(|f| (f * UNIT) as u64).collect()
}

/// The share of an edge among those that leave its source, before these are made to be one in sum.
fn share(graph: &Graph, loops: &Loops, edge: Edge) -> f64 {
    let around = edge.from.block().and_then(|from| loops.innermost(from));
    let stays = around.is_none_or(|id| edge.to.block().is_some_and(|to| loops.contains(id, to)));
    match edge.kind {
        EdgeKind::Arrival | EdgeKind::Left => ARRIVALS,
        EdgeKind::Taken if is_past_switch(graph, edge) => PAST_SWITCH,
        EdgeKind::Taken if stays && is_out_of_line(graph, edge.to) => OUT_OF_LINE,
        _ if stays => 1.0,
        _ => 1.0 / ITERATIONS,
    }
}

/// True if `edge` is that of a number for which the table of a `switch` has no entry.
fn is_past_switch(graph: &Graph, edge: Edge) -> bool {
    let mut leaving = graph.leaving(edge.from).iter().map(|&id| graph.edge(id));
    leaving.any(|other| {
        let next = other.to.block().map(|next| graph.block(next).end);
        other.kind == EdgeKind::FallThrough && next == Some(BlockEnd::Switch)
    })
}

/// True if only jumps lead to `node`.
fn is_out_of_line(graph: &Graph, node: Node) -> bool {
    let mut arriving = graph.arriving(node).iter();
    arriving.all(|&id| graph.edge(id).kind != EdgeKind::FallThrough)
}
