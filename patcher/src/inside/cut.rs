//! The edges at which acyclic paths end, and others begin.

use super::graph::{EdgeId, EdgeKind, Graph, Node};
use super::loops::Loops;

/// The edges that are cut. Without them, the graph has no cycle.
#[derive(Clone, Debug)]
pub struct Cut(Vec<bool>);

impl Cut {
    /// The back edges.
    pub fn back(graph: &Graph, loops: &Loops) -> Self {
        Self::of(graph, |edge| loops.is_back(edge))
    }

    /// All edges between blocks that lead to the header of a loop. A loop adds its paths to those
    /// of the function, and does not multiply them.
    pub fn headers(graph: &Graph, loops: &Loops) -> Self {
        let mut is_header = vec![false; graph.blocks().len()];
        for of in loops.loops() {
            is_header[of.header.index()] = true;
        }
        Self::of(graph, |id| {
            let edge = graph.edge(id);
            let to_header = edge.to.block().is_some_and(|to| is_header[to.index()]);
            to_header && edge.from != Node::Entry && edge.kind != EdgeKind::Left
        })
    }

    fn of(graph: &Graph, is_cut: impl Fn(EdgeId) -> bool) -> Self {
        Self(graph.edge_ids().map(is_cut).collect())
    }

    /// True if the edge is cut.
    pub fn is_cut(&self, edge: EdgeId) -> bool {
        self.0[edge.index()]
    }

    /// The edges, in ascending order.
    pub fn edges(&self) -> impl Iterator<Item = EdgeId> + '_ {
        let all = (0..self.0.len() as u32).map(EdgeId);
        all.filter(|&edge| self.is_cut(edge))
    }
}
