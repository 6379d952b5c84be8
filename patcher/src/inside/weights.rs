//! Expected frequencies of edges.

use super::graph::{EdgeId, Graph};
use super::loops::Loops;

/// The assumed number of iterations of a loop.
const ITERATIONS: u64 = 10;

/// The expected frequency of each edge.
pub(super) struct Weights<'a> {
    graph: &'a Graph,
    loops: &'a Loops,
    measured: Option<&'a [u64]>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(graph: &'a Graph, loops: &'a Loops, measured: Option<&'a [u64]>) -> Self {
        Self {
            graph,
            loops,
            measured,
        }
    }

    /// The measured weight of `edge`, then the estimate, which decides between equal ones.
    pub(super) fn of(&self, edge: EdgeId) -> (u64, u64) {
        let measured = self
            .measured
            .and_then(|weights| weights.get(edge.index()).copied());
        let depth = self.depth(edge);
        (
            measured.unwrap_or_default(),
            ITERATIONS.saturating_pow(depth),
        )
    }

    /// The number of loops that contain both ends of `edge`.
    ///
    /// It may be too high for a jump from one loop into another if more than one loop contains only
    /// one of them.
    fn depth(&self, edge: EdgeId) -> u32 {
        let edge = self.graph.edge(edge);
        let (Some(from), Some(to)) = (edge.from.block(), edge.to.block()) else {
            return 0;
        };
        let (Some(around), Some(target)) = (self.loops.innermost(from), self.loops.innermost(to))
        else {
            return 0;
        };
        let depths = [edge.from, edge.to].map(|node| self.loops.depth(node));
        if self.loops.contains(around, to) {
            depths[0]
        } else if self.loops.contains(target, from) {
            depths[1]
        } else {
            depths[0].min(depths[1]) - 1
        }
    }
}
