//! The loop nest, by the algorithm of Havlak ("Nesting of Reducible and Irreducible Loops", ACM
//! TOPLAS 19(4), 1997).
//!
//! The algorithm visits the nodes of a depth-first search in reverse preorder. A node with edges
//! from its descendants is the header of a loop. The loop's body consists of the nodes on paths
//! from the header to the sources of these edges. Each loop found is then merged into its header.

use std::ops::Range;

use super::depth_first::DepthFirst;
use super::graph::{BlockId, EdgeId, Graph, Node};
use super::union::Union;

/// A loop: its index in the address order of the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub u32);

impl LoopId {
    /// The index as a `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The header: the block to which the back edges lead. If the loop is not reducible, it is the
    /// first block of the loop that the depth-first search visits.
    pub header: BlockId,
    /// The loop around it; `None` for an outermost loop.
    pub parent: Option<LoopId>,
    /// The number of loops that contain it, plus 1.
    pub depth: u32,
    /// The edges from the loop to its header, ascending.
    pub back_edges: Vec<EdgeId>,
    /// True if control enters the loop only at its header.
    pub is_reducible: bool,
    /// The positions of the loop and of the loops in it, when outer loops precede inner ones.
    within: Range<u32>,
}

/// The loops of a function.
#[derive(Clone, Debug)]
pub struct Loops {
    loops: Vec<Loop>,
    /// For each block, the innermost loop that contains it.
    innermost: Vec<Option<LoopId>>,
    /// For each edge, true if it is a back edge.
    is_back: Vec<bool>,
}

/// The nest of headers, by numbers in preorder.
struct Nest {
    /// The header of the innermost loop around the node, not counting a loop that it heads.
    around: Vec<Option<usize>>,
    is_header: Vec<bool>,
    is_irreducible: Vec<bool>,
}

impl Nest {
    fn of(graph: &Graph, search: &DepthFirst) -> Self {
        let nodes = search.preorder.len();
        let mut nest = Self {
            around: vec![None; nodes],
            is_header: vec![false; nodes],
            is_irreducible: vec![false; nodes],
        };
        // The sources of the edges to each node, apart from back edges.
        let mut others: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        let mut merged = Union::new(nodes);
        // The header for which a node was last put into a body.
        let mut body_of: Vec<Option<usize>> = vec![None; nodes];
        for header in (0..nodes).rev() {
            let mut body = Vec::new();
            for &edge in graph.arriving(search.preorder[header]) {
                let Some(from) = search.number(graph, graph.edge(edge).from) else {
                    continue;
                };
                if !search.is_ancestor(header, from) {
                    others[header].push(from);
                    continue;
                }
                nest.is_header[header] = true;
                let from = merged.find(from);
                if from != header && body_of[from].replace(header) != Some(header) {
                    body.push(from);
                }
            }
            let mut next = 0;
            while let Some(&node) = body.get(next) {
                next += 1;
                for index in 0..others[node].len() {
                    let from = merged.find(others[node][index]);
                    if !search.is_ancestor(header, from) {
                        nest.is_irreducible[header] = true;
                        others[header].push(from);
                    } else if from != header && body_of[from].replace(header) != Some(header) {
                        body.push(from);
                    }
                }
            }
            for node in body {
                nest.around[node] = Some(header);
                merged.merge_into(header, node);
            }
            others[header].sort_unstable();
            others[header].dedup();
        }
        nest
    }
}

impl Loops {
    /// Finds the loops of `graph`.
    pub fn of(graph: &Graph) -> Self {
        let search = DepthFirst::of(graph);
        let nest = Nest::of(graph, &search);
        let headers = graph.block_ids().filter_map(|block| {
            let number = search.number(graph, Node::Block(block))?;
            nest.is_header[number].then_some((block, number))
        });
        let headers: Vec<(BlockId, usize)> = headers.collect();
        let mut loop_of = vec![None; search.preorder.len()];
        for (&(_, number), id) in headers.iter().zip(0..) {
            loop_of[number] = Some(LoopId(id));
        }
        let around = |number: usize| nest.around[number].and_then(|header| loop_of[header]);
        let mut is_back = vec![false; graph.edges().len()];
        let mut loops = Vec::new();
        for &(header, number) in &headers {
            let arriving = graph.arriving(Node::Block(header)).iter().copied();
            let comes_back = |edge: &EdgeId| {
                let from = search.number(graph, graph.edge(*edge).from);
                from.is_some_and(|from| search.is_ancestor(number, from))
            };
            let back_edges: Vec<EdgeId> = arriving.filter(comes_back).collect();
            for edge in &back_edges {
                is_back[edge.index()] = true;
            }
            loops.push(Loop {
                header,
                parent: around(number),
                depth: 1,
                back_edges,
                is_reducible: !nest.is_irreducible[number],
                within: 0..1,
            });
        }
        let outer_first: Vec<LoopId> = loop_of.iter().copied().flatten().collect();
        set_depths(&mut loops, &outer_first);
        let innermost = graph.block_ids().map(|block| {
            let number = search.number(graph, Node::Block(block))?;
            loop_of[number].or_else(|| around(number))
        });
        let innermost = innermost.collect();
        Self {
            loops,
            innermost,
            is_back,
        }
    }

    /// The loops, in the address order of their headers.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The innermost loop that contains `block`; `None` if none does.
    pub fn innermost(&self, block: BlockId) -> Option<LoopId> {
        self.innermost[block.index()]
    }

    /// True if the loop or a loop in it contains `block`.
    pub fn contains(&self, id: LoopId, block: BlockId) -> bool {
        let within = &self.loops[id.index()].within;
        let innermost = self.innermost(block);
        innermost.is_some_and(|inner| within.contains(&self.loops[inner.index()].within.start))
    }

    /// All blocks of the loop and of the loops in it, ascending.
    pub fn blocks(&self, id: LoopId) -> impl Iterator<Item = BlockId> + '_ {
        let all = (0..self.innermost.len() as u32).map(BlockId);
        all.filter(move |&block| self.contains(id, block))
    }

    /// The number of loops that contain `node`.
    pub fn depth(&self, node: Node) -> u32 {
        let innermost = node.block().and_then(|block| self.innermost(block));
        innermost.map_or(0, |id| self.loops[id.index()].depth)
    }

    /// True if the edge is a back edge of a loop. Without these edges, the graph has no cycle.
    pub fn is_back(&self, edge: EdgeId) -> bool {
        self.is_back[edge.index()]
    }
}

/// Sets the depth and the range of positions of each loop. `outer_first` has every loop after the
/// loop around it.
fn set_depths(loops: &mut [Loop], outer_first: &[LoopId]) {
    let mut sizes = vec![1; loops.len()];
    for id in outer_first.iter().rev() {
        if let Some(parent) = loops[id.index()].parent {
            sizes[parent.index()] += sizes[id.index()];
        }
    }
    // The next free position for an outermost loop, and in each loop.
    let mut outermost = 0;
    let mut inner = vec![0; loops.len()];
    for id in outer_first {
        let size = sizes[id.index()];
        let parent = loops[id.index()].parent;
        let next = parent.map_or(&mut outermost, |parent| &mut inner[parent.index()]);
        let start = *next;
        *next += size;
        inner[id.index()] = start + 1;
        let depth = parent.map_or(0, |parent| loops[parent.index()].depth);
        let own = &mut loops[id.index()];
        own.depth = depth + 1;
        own.within = start..start + size;
    }
}
