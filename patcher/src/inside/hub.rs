//! Jumps of interpreters, which lead to many labels.
//!
//! Each instruction of an interpreter may end with a jump to the label of any other. No instruction
//! runs for one of these edges alone, and there are too many targets to compare. So the jumps with
//! the same targets lead to a hub, and the hub to the targets. How often control passes from one
//! jump to one target is then not known. All other counts are.

use std::collections::BTreeMap;

use crate::addr::Svma;

use super::graph::{Block, BlockEnd, BlockId, Edge, EdgeKind, Graph, Node};

/// Segments without the edges of jumps to many targets.
pub(super) struct Joined {
    pub(super) segments: Graph,
    /// For each segment, its block. Hubs have numbers after those of the function's blocks.
    pub(super) blocks: Vec<BlockId>,
    /// For each hub, the address of one of its jumps.
    pub(super) hubs: Vec<Svma>,
}

/// Gives each set of more than `most` targets a hub. `blocks` has the block of each segment, one of
/// `count`. `None` if no jump has so many targets.
pub(super) fn joined(
    segments: &Graph,
    (blocks, count): (&[BlockId], usize),
    most: usize,
) -> Option<Joined> {
    let mut jumps: BTreeMap<Vec<Node>, Vec<BlockId>> = BTreeMap::new();
    for id in segments.block_ids() {
        let leaving = segments.leaving(Node::Block(id)).iter();
        let leaving = leaving.map(|&edge| segments.edge(edge));
        if leaving.len() <= most || !leaving.clone().all(|edge| edge.kind == EdgeKind::Table) {
            continue;
        }
        let mut targets: Vec<Node> = leaving.map(|edge| edge.to).collect();
        targets.sort_unstable();
        jumps.entry(targets).or_default().push(id);
    }
    if jumps.is_empty() {
        return None;
    }
    let first = segments.blocks().len() as u32;
    let mut hub_of: BTreeMap<BlockId, BlockId> = BTreeMap::new();
    let mut all = segments.blocks().to_vec();
    let mut blocks = blocks.to_vec();
    let mut hubs = Vec::new();
    let mut leaving = Vec::new();
    for ((targets, sources), number) in jumps.into_iter().zip(0..) {
        let hub = BlockId(first + number);
        let of_first = segments.block(sources[0]);
        let at = of_first.last;
        hub_of.extend(sources.iter().map(|&source| (source, hub)));
        all.push(Block {
            range: at..at,
            insns: of_first.insns.end..of_first.insns.end,
            first: at,
            last: at,
            end: BlockEnd::Switch,
            ..of_first.clone()
        });
        blocks.push(BlockId(count as u32 + number));
        hubs.push(at);
        leaving.extend(targets.into_iter().map(|to| Edge {
            from: Node::Block(hub),
            to,
            kind: EdgeKind::Table,
        }));
    }
    let mut edges = Vec::new();
    for &edge in segments.edges() {
        let hub = edge.from.block().and_then(|from| hub_of.get(&from));
        let Some(&hub) = hub else {
            edges.push(edge);
            continue;
        };
        let joined = Edge {
            to: Node::Block(hub),
            ..edge
        };
        if edges.last() != Some(&joined) {
            edges.push(joined);
        }
    }
    edges.extend(leaving);
    Some(Joined {
        segments: Graph::new(all, edges),
        blocks,
        hubs,
    })
}
