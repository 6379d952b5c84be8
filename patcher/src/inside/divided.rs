//! Segments divided at further addresses.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::addr::Svma;
use crate::flow::Flow;
use crate::isa::Insn;

use super::counting::segment;
use super::graph::{Block, BlockId, Edge, EdgeKind, Graph, Node};
use super::inlined::{Bodiless, InlinedCopy};

/// Divides segments at these addresses. Returns the parts, and the segment of each part.
pub(super) fn cut(flow: &Flow, graph: &Graph, borders: &BTreeSet<Svma>) -> (Graph, Vec<BlockId>) {
    let (mut parts, mut whole, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for id in graph.block_ids() {
        let block = graph.block(id);
        first.push(parts.len() as u32);
        let mut start = block.insns.start;
        let inner = block.insns.clone().skip(1);
        let is_border = |&index: &usize| {
            let at = Svma(flow.insns[index].at());
            // A probe at the start of the block is behind its landing marker.
            at > block.first && borders.contains(&at)
        };
        for index in inner.filter(is_border) {
            parts.push(part_of(flow, block, start..index));
            start = index;
        }
        parts.push(part_of(flow, block, start..block.insns.end));
        whole.resize(parts.len(), id);
    }
    first.push(parts.len() as u32);
    let mut edges = Vec::new();
    let arriving = |node: Node| match node {
        Node::Block(block) => Node::Block(BlockId(first[block.index()])),
        other => other,
    };
    let leaving = |node: Node| graph.leaving(node).iter().map(|&id| graph.edge(id));
    let mut add = |from: Node, of: Node| {
        edges.extend(leaving(of).map(|edge| Edge {
            from,
            to: arriving(edge.to),
            kind: edge.kind,
        }));
    };
    add(Node::Entry, Node::Entry);
    let mut falls = Vec::new();
    for (part, &of) in (0..).zip(&whole) {
        let from = Node::Block(BlockId(part));
        if part + 1 < first[of.index() + 1] {
            falls.push(part);
        } else {
            add(from, Node::Block(of));
        }
    }
    edges.extend(falls.into_iter().map(|part| Edge {
        from: Node::Block(BlockId(part)),
        to: Node::Block(BlockId(part + 1)),
        kind: EdgeKind::FallThrough,
    }));
    (Graph::new(parts, edges), whole)
}

fn part_of(flow: &Flow, block: &Block, insns: Range<usize>) -> Block {
    if insns == block.insns {
        return block.clone();
    }
    segment(flow, block, insns)
}

/// The addresses at which a copy's ranges begin and end, if they are those of instructions of the
/// function.
pub(super) fn borders(flow: &Flow, copy: &InlinedCopy) -> Result<Vec<Svma>, Bodiless> {
    let mut found = Vec::new();
    for range in &copy.ranges {
        let is_in = |of: &&Range<Svma>| of.start <= range.start && range.end <= of.end;
        let Some(around) = flow.ranges.iter().find(is_in) else {
            return Err(Bodiless::Elsewhere(range.start));
        };
        for at in [range.start, range.end] {
            let after = flow.insns.partition_point(|insn| insn.at() < at.0);
            let before = after.checked_sub(1).map(|before| &flow.insns[before]);
            let is_inside = |insn: &Insn| insn.at() < at.0 && at.0 < insn.end();
            if at != around.end && before.is_some_and(is_inside) {
                return Err(Bodiless::Misplaced(at));
            }
            found.push(at);
        }
    }
    Ok(found)
}
