//! Random graphs, and random walks through them.

use proptest::prelude::*;

use super::graph::{Block, BlockEnd, BlockId, Edge, EdgeId, EdgeKind, Graph, Node};
use crate::addr::Svma;

/// A graph with these edges between `blocks` blocks, and with further edges: from the virtual entry
/// to the first block and to each block that is not reached, and to the virtual exit from each
/// block without a successor.
pub(super) fn graph(blocks: usize, between: &[(usize, usize)], entries: &[usize]) -> Graph {
    let block = |index: usize| Node::Block(BlockId(index as u32));
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); blocks];
    for &(source, target) in between {
        from[source].push(target);
    }
    let mut arrivals = vec![0];
    arrivals.extend(entries);
    let mut is_reached = vec![false; blocks];
    let mut unreached = 0..blocks;
    let mut next = 0;
    loop {
        while next < arrivals.len() {
            let mut work = vec![arrivals[next]];
            next += 1;
            while let Some(at) = work.pop() {
                if !std::mem::replace(&mut is_reached[at], true) {
                    work.extend(&from[at]);
                }
            }
        }
        match unreached.find(|&at| !is_reached[at]) {
            Some(at) => arrivals.push(at),
            None => break,
        }
    }
    let mut edges = Vec::new();
    for (&to, index) in arrivals.iter().zip(0..) {
        let kind = if index == 0 {
            EdgeKind::Call
        } else {
            EdgeKind::Arrival
        };
        edges.push(Edge {
            from: Node::Entry,
            to: block(to),
            kind,
        });
    }
    let mut ends = Vec::new();
    for (index, targets) in from.iter().enumerate() {
        for &to in targets {
            edges.push(Edge {
                from: block(index),
                to: block(to),
                kind: EdgeKind::Taken,
            });
        }
        if targets.is_empty() {
            edges.push(Edge {
                from: block(index),
                to: Node::Exit,
                kind: EdgeKind::Departure,
            });
        }
        ends.push(match targets.len() {
            0 => BlockEnd::Return,
            1 => BlockEnd::Jump,
            2 => BlockEnd::Conditional,
            _ => BlockEnd::Switch,
        });
    }
    let blocks = ends.into_iter().enumerate().map(|(index, end)| {
        let at = Svma(0x1000 + 4 * index as u64);
        Block {
            range: at.range(4),
            insns: index..index + 1,
            first: at,
            last: at,
            end,
            is_certain: true,
        }
    });
    Graph::new(blocks.collect(), edges)
}

/// A graph of up to 24 blocks with random edges. Many are not reducible.
pub(super) fn any_graph() -> impl Strategy<Value = Graph> {
    (1_usize..24).prop_flat_map(|blocks| {
        let edges = prop::collection::vec((0..blocks, 0..blocks), 0..2 * blocks + 2);
        let entries = prop::collection::vec(0..blocks, 0..2);
        (edges, entries).prop_map(move |(edges, entries)| graph(blocks, &edges, &entries))
    })
}

/// A reducible graph, as a structured program makes it.
pub(super) fn reducible_graph() -> impl Strategy<Value = Graph> {
    prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 0..16).prop_map(|steps| {
        // Each edge is replaced by a structure with one entry and one exit.
        let mut blocks = 2;
        let mut edges = vec![(0, 1)];
        for (kind, choice) in steps {
            let chosen = choice.index(edges.len());
            let (from, to) = edges.swap_remove(chosen);
            let new = blocks;
            match kind {
                // A sequence.
                0 => {
                    edges.extend([(from, new), (new, to)]);
                    blocks += 1;
                }
                // A condition with one branch.
                1 => {
                    edges.extend([(from, new), (new, new + 1), (new, to), (new + 1, to)]);
                    blocks += 2;
                }
                // A loop of one block.
                2 => {
                    edges.extend([(from, new), (new, new), (new, to)]);
                    blocks += 1;
                }
                // A loop that is left in the middle.
                3 => {
                    edges.extend([(from, new), (new, new + 1), (new + 1, new), (new, to)]);
                    blocks += 2;
                }
                // A loop with two back edges.
                _ => {
                    let (a, b) = (new + 1, new + 2);
                    edges.extend([(from, new), (new, a), (new, b), (a, new), (b, new), (b, to)]);
                    blocks += 3;
                }
            }
        }
        graph(blocks, &edges, &[])
    })
}

/// The edges of a random walk from the virtual entry. At the virtual exit it continues at the
/// entry. It ends at the exit if the graph has a path to it.
pub(super) fn walk(graph: &Graph, choices: &[prop::sample::Index]) -> Vec<EdgeId> {
    let mut node = Node::Entry;
    let mut found = Vec::new();
    for choice in choices {
        if node == Node::Exit {
            node = Node::Entry;
        }
        let leaving = graph.leaving(node);
        let edge = leaving[choice.index(leaving.len())];
        found.push(edge);
        node = graph.edge(edge).to;
    }
    let end = path_to_exit(graph, node);
    found.extend(end.into_iter().flatten());
    found
}

/// The edges of a shortest path from `node` to the virtual exit.
fn path_to_exit(graph: &Graph, node: Node) -> Option<Vec<EdgeId>> {
    let mut paths = std::collections::VecDeque::from([(node, Vec::new())]);
    let mut seen = std::collections::HashSet::new();
    while let Some((node, path)) = paths.pop_front() {
        if node == Node::Exit {
            return Some(path);
        }
        if seen.insert(node) {
            for &edge in graph.leaving(node) {
                let mut path = path.clone();
                path.push(edge);
                paths.push_back((graph.edge(edge).to, path));
            }
        }
    }
    None
}
