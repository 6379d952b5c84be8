//! The control-flow graph of one function.

use std::fmt;
use std::ops::Range;

use crate::addr::Svma;

/// A basic block: its index in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// An edge: its index in [`Graph::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub u32);

impl BlockId {
    /// The index as a `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl EdgeId {
    /// The index as a `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The virtual entry, the source of all arrivals from outside.
    Entry,
    /// A basic block.
    Block(BlockId),
    /// The virtual exit, the target of all departures.
    Exit,
}

impl Node {
    /// The block, unless the node is virtual.
    pub fn block(self) -> Option<BlockId> {
        match self {
            Self::Block(block) => Some(block),
            Self::Entry | Self::Exit => None,
        }
    }
}

/// The end of a basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockEnd {
    /// Control continues at the next instruction, which begins another block.
    FallsThrough,
    /// A direct jump within the function.
    Jump,
    /// A direct jump if a condition holds, else the next instruction. The beginning of a
    /// transaction counts: control continues at its other target if the transaction is aborted.
    Conditional,
    /// A jump through a table of the function's own addresses.
    Switch,
    /// A return.
    Return,
    /// A jump out of the function.
    TailCall,
    /// A jump through a pointer: out of the function, or to one of its labels.
    PointerJump,
    /// Control falls through into the code behind the function.
    FallsOut,
    /// An instruction after which control never continues, such as a trap.
    Trap,
    /// A call that never returns, because no instruction of the function follows.
    NoReturn,
}

/// A basic block: instructions that run one after the other. A call does not end a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The addresses of its bytes.
    pub range: Range<Svma>,
    /// The indexes of its instructions in [`Flow::insns`](crate::flow::Flow::insns).
    pub insns: Range<usize>,
    /// The address for a probe at its start: the first instruction, or the one after a landing
    /// marker.
    pub first: Svma,
    /// The address of its last instruction.
    pub last: Svma,
    /// The end of the block.
    pub end: BlockEnd,
    /// True if the bytes are certainly instructions. Otherwise only a label leads to them, and they
    /// may be data.
    pub is_certain: bool,
}

/// The cause of a transfer of control along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// A call of the function, from the virtual entry to its first instruction.
    Call,
    /// An arrival other than by a call of the function, from the virtual entry. Its target is a
    /// landing pad, a label, or the target of a branch from other code.
    Arrival,
    /// Control continues at the next instruction.
    FallThrough,
    /// A direct branch is taken.
    Taken,
    /// An entry of a jump table.
    Table,
    /// A departure to the virtual exit at the end of a block, other than by a direct branch.
    Departure,
    /// A departure to the virtual exit from inside a call. Only graphs of segments have it
    /// ([`Counting`](super::Counting)).
    Left,
}

/// An edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The source.
    pub from: Node,
    /// The target.
    pub to: Node,
    /// The cause of the transfer.
    pub kind: EdgeKind,
}

/// The control-flow graph of one function.
///
/// Every block is reachable from the virtual entry, and every block has a successor. A block
/// without a successor in the function has an edge to the virtual exit.
///
/// Edges over-approximate: a table may have fewer entries than edges, and an instruction after a
/// call may never run. The count of such an edge is 0.
#[derive(Clone, Debug)]
pub struct Graph {
    blocks: Vec<Block>,
    edges: Vec<Edge>,
    leaving: Lists,
    arriving: Lists,
}

/// The edges of each node, in ascending order.
#[derive(Clone, Debug)]
struct Lists {
    /// For each node, the index of its first edge in `edges`, and the end of the last.
    first: Vec<usize>,
    edges: Vec<EdgeId>,
}

impl Lists {
    fn new(nodes: usize, ends: impl Iterator<Item = usize> + Clone) -> Self {
        let mut first = vec![0; nodes + 1];
        for node in ends.clone() {
            first[node + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut edges = vec![EdgeId(0); first[nodes]];
        for (node, edge) in ends.zip(0..) {
            edges[next[node]] = EdgeId(edge);
            next[node] += 1;
        }
        Self { first, edges }
    }

    fn of(&self, node: usize) -> &[EdgeId] {
        &self.edges[self.first[node]..self.first[node + 1]]
    }
}

impl Graph {
    pub(super) fn new(blocks: Vec<Block>, edges: Vec<Edge>) -> Self {
        let exit = blocks.len() + 1;
        let nodes = blocks.len() + 2;
        let index = move |node| index_of(node, exit);
        let leaving = Lists::new(nodes, edges.iter().map(|edge| index(edge.from)));
        let arriving = Lists::new(nodes, edges.iter().map(|edge| index(edge.to)));
        Self {
            blocks,
            edges,
            leaving,
            arriving,
        }
    }

    /// The basic blocks, in address order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The edges, in ascending order of their sources.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The identifiers of all blocks, ascending.
    pub fn block_ids(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        (0..self.blocks.len() as u32).map(BlockId)
    }

    /// The identifiers of all edges, ascending.
    pub fn edge_ids(&self) -> impl DoubleEndedIterator<Item = EdgeId> + use<> {
        (0..self.edges.len() as u32).map(EdgeId)
    }

    /// The block `id`.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// The edge `id`.
    pub fn edge(&self, id: EdgeId) -> Edge {
        self.edges[id.index()]
    }

    /// The edges that leave `node`, ascending.
    pub fn leaving(&self, node: Node) -> &[EdgeId] {
        self.leaving.of(self.index(node))
    }

    /// The edges that arrive at `node`, ascending.
    pub fn arriving(&self, node: Node) -> &[EdgeId] {
        self.arriving.of(self.index(node))
    }

    /// The block that contains the instruction at `at`; `None` if no block does.
    pub fn block_at(&self, at: Svma) -> Option<BlockId> {
        let after = self.blocks.partition_point(|b| b.range.start <= at);
        let block = after.checked_sub(1)?;
        let is_inside = self.blocks[block].range.contains(&at);
        is_inside.then_some(BlockId(block as u32))
    }

    /// The number of nodes: the blocks and the two virtual nodes.
    pub(super) fn nodes(&self) -> usize {
        self.blocks.len() + 2
    }

    /// The two nodes of each edge, for [`solve`](super::solve()). The virtual exit is the virtual
    /// entry there: as many activations leave as enter.
    pub fn ends(&self) -> Vec<(usize, usize)> {
        let node = |node| match node {
            Node::Exit => self.index(Node::Entry),
            node => self.index(node),
        };
        let edges = self.edges.iter();
        edges.map(|edge| (node(edge.from), node(edge.to))).collect()
    }

    /// The index of `node`: 0 for the virtual entry, then the blocks, then the virtual exit.
    pub(super) fn index(&self, node: Node) -> usize {
        index_of(node, self.blocks.len() + 1)
    }
}

pub(super) fn index_of(node: Node, exit: usize) -> usize {
    match node {
        Node::Entry => 0,
        Node::Block(block) => block.index() + 1,
        Node::Exit => exit,
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

impl fmt::Display for EdgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edge {}", self.0)
    }
}

impl fmt::Display for BlockEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FallsThrough => "falls through",
            Self::Jump => "jump",
            Self::Conditional => "conditional jump",
            Self::Switch => "switch",
            Self::Return => "return",
            Self::TailCall => "tail call",
            Self::PointerJump => "jump through a pointer",
            Self::FallsOut => "falls out of the function",
            Self::Trap => "trap",
            Self::NoReturn => "call that never returns",
        })
    }
}
