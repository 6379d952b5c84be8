//! Dominators, by the algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance
//! Algorithm", 2001).

use super::depth_first::DepthFirst;
use super::graph::{BlockId, Graph, Node};

/// The dominator tree of a graph. Its root is the virtual entry.
#[derive(Clone, Debug)]
pub struct Dominators {
    /// For each node's index, the index of its immediate dominator. The entry has itself.
    immediate: Vec<Option<usize>>,
    /// For each node's index, its number in postorder. A dominator has a higher number.
    order: Vec<usize>,
    exit: usize,
}

impl Dominators {
    /// Computes the dominators of `graph`.
    pub fn of(graph: &Graph) -> Self {
        let search = DepthFirst::of(graph);
        let mut order = vec![0; graph.nodes()];
        for (number, &node) in search.postorder.iter().enumerate() {
            order[graph.index(node)] = number;
        }
        let entry = graph.index(Node::Entry);
        let mut found = Self {
            immediate: vec![None; graph.nodes()],
            order,
            exit: graph.index(Node::Exit),
        };
        found.immediate[entry] = Some(entry);
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for &node in search.postorder.iter().rev().skip(1) {
                let arriving = graph.arriving(node).iter();
                let before = arriving.map(|&edge| graph.index(graph.edge(edge).from));
                let known = before.filter(|&from| found.immediate[from].is_some());
                let new = known.reduce(|a, b| found.intersect(a, b));
                let old = &mut found.immediate[graph.index(node)];
                has_changed |= *old != new;
                *old = new;
            }
        }
        found
    }

    /// The closest node that is on all paths to `block`, other than the block itself.
    pub fn immediate(&self, block: BlockId) -> Node {
        self.immediate[self.index(Node::Block(block))].map_or(Node::Entry, |node| self.node(node))
    }

    /// True if every path from the virtual entry to `node` contains `dominator`. A node dominates
    /// itself. If nothing leads to the virtual exit, only the exit dominates it.
    pub fn dominates(&self, dominator: Node, node: Node) -> bool {
        let dominator = self.index(dominator);
        let mut node = self.index(node);
        while self.order[node] < self.order[dominator] {
            match self.immediate[node] {
                Some(above) => node = above,
                None => return node == dominator,
            }
        }
        node == dominator
    }

    /// The closest common dominator of two nodes whose dominators are known.
    fn intersect(&self, mut a: usize, mut b: usize) -> usize {
        while a != b {
            let lower = if self.order[a] < self.order[b] {
                &mut a
            } else {
                &mut b
            };
            match self.immediate[*lower] {
                Some(above) => *lower = above,
                None => return a.min(b),
            }
        }
        a
    }

    fn index(&self, node: Node) -> usize {
        match node {
            Node::Entry => 0,
            Node::Block(block) => block.index() + 1,
            Node::Exit => self.exit,
        }
    }

    fn node(&self, index: usize) -> Node {
        match index.checked_sub(1) {
            None => Node::Entry,
            Some(_) if index == self.exit => Node::Exit,
            Some(block) => Node::Block(BlockId(block as u32)),
        }
    }
}
