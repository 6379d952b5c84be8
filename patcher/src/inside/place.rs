//! The place at which the transfers along an edge can be counted.

use crate::addr::Svma;

use super::graph::{BlockId, Edge, EdgeId, EdgeKind, Graph, Node};

/// A place at which control passes once for each transfer along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Before the first instruction of a block at which no other edge arrives.
    Start(BlockId, Svma),
    /// Before the last instruction of a block that no other edge leaves.
    ///
    /// A transfer is counted before that instruction has run. If it is a call that does not return,
    /// the count is too high by 1.
    End(BlockId, Svma),
    /// On the branch or the jump through a table at the source of a critical edge, which is one of
    /// several edges from its source and one of several edges to its target.
    Branch(BlockId, Svma),
}

impl Place {
    /// The place of `edge`. `None` if no instruction is executed for this edge alone: control
    /// arrives from elsewhere or by the return of a call, at a block that has other predecessors,
    /// or it departs from inside a call.
    pub fn of(graph: &Graph, edge: EdgeId) -> Option<Self> {
        let Edge { from, to, kind } = graph.edge(edge);
        if kind == EdgeKind::Left {
            return None;
        }
        if let Node::Block(to) = to
            && graph.arriving(Node::Block(to)).len() == 1
        {
            return Some(Self::Start(to, graph.block(to).first));
        }
        let from = from.block()?;
        let leaving = graph.leaving(Node::Block(from));
        if graph.block(from).insns.is_empty() && leaving.len() > 1 {
            // A hub: its jumps are elsewhere.
            return None;
        }
        if leaving
            .iter()
            .any(|&id| graph.edge(id).kind == EdgeKind::Left)
        {
            // A call returns to the target itself.
            return None;
        }
        let last = graph.block(from).last;
        match leaving.len() {
            1 => Some(Self::End(from, last)),
            _ => Some(Self::Branch(from, last)),
        }
    }

    /// How good the place of `edge` is: 0 without one, 1 for a jump through a table, whose target
    /// must be compared, and 2 for any other.
    pub(super) fn rank(graph: &Graph, edge: EdgeId) -> u8 {
        match Self::of(graph, edge) {
            None => 0,
            Some(Self::Branch(..)) if graph.edge(edge).kind == EdgeKind::Table => 1,
            Some(_) => 2,
        }
    }

    /// The address of the instruction.
    pub fn at(self) -> Svma {
        match self {
            Self::Start(_, at) | Self::End(_, at) | Self::Branch(_, at) => at,
        }
    }
}
