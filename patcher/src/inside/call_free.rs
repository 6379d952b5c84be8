//! The part of a loop that runs without calls.

use std::collections::BTreeSet;

use super::graph::{BlockId, Graph, Node};
use super::loops::{LoopId, Loops};

/// The part of a loop that may run from a copy.
pub(super) struct CallFree {
    /// The blocks that control reaches from the header without another block of the loop between
    /// that may not be copied. They go around the loop at least on one way.
    pub(super) blocks: Vec<BlockId>,
    /// Those of them that control reaches from such another block, too, without the header of a
    /// loop between. They also run at their original addresses.
    pub(super) shared: BTreeSet<BlockId>,
}

impl CallFree {
    /// The part of the loop `id`. `may_be_copied` says which blocks may run from a copy. `None` if
    /// each way around the loop has one that may not.
    pub(super) fn of(
        graph: &Graph,
        loops: &Loops,
        id: LoopId,
        may_be_copied: impl Fn(BlockId) -> bool,
    ) -> Option<Self> {
        let own = &loops.loops()[id.index()];
        let is_inside = |block: BlockId| loops.contains(id, block);
        let next = |block: BlockId| {
            let edges = graph.leaving(Node::Block(block)).iter();
            edges.filter_map(|&edge| graph.edge(edge).to.block())
        };
        if !may_be_copied(own.header) {
            return None;
        }
        let mut part = BTreeSet::new();
        let mut work = vec![own.header];
        while let Some(block) = work.pop() {
            if is_inside(block) && may_be_copied(block) && part.insert(block) {
                work.extend(next(block));
            }
        }
        let mut around = own.back_edges.iter().map(|&edge| graph.edge(edge).from);
        let goes_around = around.any(|from| from.block().is_some_and(|from| part.contains(&from)));
        let headers: BTreeSet<BlockId> = loops.loops().iter().map(|l| l.header).collect();
        let others = loops.blocks(id).filter(|block| !part.contains(block));
        let mut shared = BTreeSet::new();
        let mut work: Vec<BlockId> = others.flat_map(next).collect();
        while let Some(block) = work.pop() {
            // Others are in the list from the start.
            if part.contains(&block) && !headers.contains(&block) && shared.insert(block) {
                work.extend(next(block));
            }
        }
        goes_around.then(|| Self {
            blocks: part.into_iter().collect(),
            shared,
        })
    }
}
