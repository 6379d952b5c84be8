//! The edges that must be counted to know the counts of all edges, after Knuth and Stevenson
//! ("Optimal measurement points for program frequency counts", BIT 13, 1973).
//!
//! As many transfers arrive at a block as leave it. So the counts on a spanning tree follow from
//! the counts of the other edges, which are the chords. A virtual edge from the exit to the entry
//! makes this true for the two virtual nodes too. It is always on the tree.
//!
//! An activation that is inside a block, or that has left the middle of a block by an exception,
//! has arrived there and not departed. Each of them makes one derived count wrong by 1 on a path
//! from the block.

use std::cmp::Reverse;
use std::fmt;

use super::graph::{BlockId, EdgeId, Graph, Node};
use super::loops::Loops;
use super::place::Place;
use super::solve::solve;
use super::union::Union;
use super::weights::Weights;

/// The chords of a maximum spanning tree.
#[derive(Clone, Debug)]
pub struct Chords {
    /// The chords, ascending.
    chords: Vec<EdgeId>,
}

/// The counts of all edges and blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// For each edge, the number of transfers of control along it.
    pub edges: Vec<u64>,
    /// For each block, the number of times that control has entered it.
    pub blocks: Vec<u64>,
}

/// A contradiction between counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Contradiction {
    /// There must be `expected` counts, and there are `found`.
    Length {
        /// The number of counts expected.
        expected: usize,
        /// The number of counts found.
        found: usize,
    },
    /// The count of an edge would be negative.
    Negative(EdgeId),
    /// The count of an edge would not fit 64 bits.
    EdgeOverflow(EdgeId),
    /// The count of a block would not fit 64 bits.
    BlockOverflow(BlockId),
    /// The numbers of transfers to and from a node differ.
    Unbalanced {
        /// The node. The virtual entry stands for both virtual nodes.
        node: Node,
        /// The number of transfers to it.
        arriving: u128,
        /// The number of transfers from it.
        leaving: u128,
    },
}

impl Chords {
    /// Chooses the chords of `graph`.
    ///
    /// The tree has the maximum sum of weights. The weight of an edge is its count in `measured`,
    /// then its expected frequency. Edges after the end of `measured` have a count of 0.
    /// Edges without a [`Place`] are on the tree wherever this is possible, then those of jumps
    /// through tables.
    pub fn of(graph: &Graph, loops: &Loops, measured: Option<&[u64]>) -> Self {
        let weights = Weights::new(graph, loops, measured);
        let mut order: Vec<EdgeId> = graph.edge_ids().collect();
        order.sort_by_cached_key(|&edge| (Place::rank(graph, edge), Reverse(weights.of(edge))));
        let mut sets = Union::new(graph.nodes());
        sets.merge_into(graph.index(Node::Exit), graph.index(Node::Entry));
        order.retain(|&id| {
            let edge = graph.edge(id);
            !sets.merge_into(graph.index(edge.from), graph.index(edge.to))
        });
        order.sort_unstable();
        Self { chords: order }
    }

    /// The edges that must be counted, ascending.
    pub fn edges(&self) -> &[EdgeId] {
        &self.chords
    }

    /// The counts of all edges and blocks from those of the chords, in the order of
    /// [`Chords::edges`].
    ///
    /// Fails if there is not one count for each chord, or if a count would be negative or too
    /// large.
    pub fn solve(&self, graph: &Graph, counts: &[u64]) -> Result<Counts, Contradiction> {
        check_length(self.chords.len(), counts.len())?;
        let counted = self
            .chords
            .iter()
            .map(|id| id.index())
            .zip(counts.iter().copied());
        let counted: Vec<(usize, u64)> = counted.collect();
        let solved =
            solve(graph.nodes(), &graph.ends(), &counted).map_err(|_| Contradiction::Length {
                expected: self.chords.len(),
                found: counts.len(),
            })?;
        let edges = graph
            .edge_ids()
            .zip(solved)
            .map(|(id, count)| match u64::try_from(count) {
                Ok(count) => Ok(count),
                Err(_) if count < 0 => Err(Contradiction::Negative(id)),
                Err(_) => Err(Contradiction::EdgeOverflow(id)),
            });
        let edges = edges.collect::<Result<Vec<u64>, _>>()?;
        let blocks = graph.block_ids().map(|block| {
            let count = sum(&edges, graph.arriving(Node::Block(block)));
            u64::try_from(count).map_err(|_| Contradiction::BlockOverflow(block))
        });
        let blocks = blocks.collect::<Result<_, _>>()?;
        Ok(Counts { edges, blocks })
    }
}

/// Checks that as many transfers arrive at each node as leave it. `edges` has a count for each edge
/// of `graph`.
pub fn check(graph: &Graph, edges: &[u64]) -> Result<(), Contradiction> {
    check_length(graph.edges().len(), edges.len())?;
    let is_balanced = |node, arriving: &[EdgeId], leaving: &[EdgeId]| {
        let [arriving, leaving] = [arriving, leaving].map(|list| sum(edges, list));
        let unbalanced = Contradiction::Unbalanced {
            node,
            arriving,
            leaving,
        };
        (arriving == leaving).then_some(()).ok_or(unbalanced)
    };
    let entry = Node::Entry;
    is_balanced(entry, graph.arriving(Node::Exit), graph.leaving(entry))?;
    let mut blocks = graph.block_ids().map(Node::Block);
    blocks.try_for_each(|node| is_balanced(node, graph.arriving(node), graph.leaving(node)))
}

fn check_length(expected: usize, found: usize) -> Result<(), Contradiction> {
    let wrong = Contradiction::Length { expected, found };
    (expected == found).then_some(()).ok_or(wrong)
}

fn sum(counts: &[u64], edges: &[EdgeId]) -> u128 {
    edges.iter().map(|e| u128::from(counts[e.index()])).sum()
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, found } => {
                write!(f, "expected {expected} counts, found {found}")
            }
            Self::Negative(edge) => write!(f, "the count of {edge} would be negative"),
            Self::EdgeOverflow(edge) => write!(f, "the count of {edge} exceeds 64 bits"),
            Self::BlockOverflow(block) => write!(f, "the count of {block} exceeds 64 bits"),
            Self::Unbalanced {
                node,
                arriving,
                leaving,
            } => {
                match node {
                    Node::Block(block) => write!(f, "{block}")?,
                    Node::Entry | Node::Exit => f.write_str("the function")?,
                }
                write!(f, " is entered {arriving} times and left {leaving} times")
            }
        }
    }
}

impl std::error::Error for Contradiction {}
