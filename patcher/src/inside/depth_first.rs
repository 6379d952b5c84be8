//! A depth-first search from the virtual entry.

use super::graph::{EdgeId, Graph, Node};

/// The order in which a depth-first search visits the nodes. Nodes that it does not reach have no
/// number.
pub(super) struct DepthFirst {
    /// The nodes, in preorder.
    pub(super) preorder: Vec<Node>,
    /// The nodes, in postorder.
    pub(super) postorder: Vec<Node>,
    /// For each node's index, its number in preorder.
    number: Vec<Option<usize>>,
    /// For each number in preorder, the largest number among its descendants.
    last: Vec<usize>,
}

impl DepthFirst {
    /// Visits the successors of each node in the order of its edges.
    pub(super) fn of(graph: &Graph) -> Self {
        let mut found = Self {
            preorder: Vec::new(),
            postorder: Vec::new(),
            number: vec![None; graph.nodes()],
            last: Vec::new(),
        };
        let mut path: Vec<(Node, &[EdgeId])> = Vec::new();
        found.visit(graph, Node::Entry, &mut path);
        while let Some((node, rest)) = path.last_mut() {
            match rest.split_first() {
                Some((&edge, others)) => {
                    *rest = others;
                    found.visit(graph, graph.edge(edge).to, &mut path);
                }
                None => {
                    let node = *node;
                    found.postorder.push(node);
                    if let Some(number) = found.number(graph, node) {
                        found.last[number] = found.preorder.len() - 1;
                    }
                    path.pop();
                }
            }
        }
        found
    }

    fn visit<'g>(&mut self, graph: &'g Graph, node: Node, path: &mut Vec<(Node, &'g [EdgeId])>) {
        let number = &mut self.number[graph.index(node)];
        if number.is_none() {
            *number = Some(self.preorder.len());
            self.preorder.push(node);
            self.last.push(0);
            path.push((node, graph.leaving(node)));
        }
    }

    /// The number of `node` in preorder; `None` if the search does not reach it.
    pub(super) fn number(&self, graph: &Graph, node: Node) -> Option<usize> {
        self.number[graph.index(node)]
    }

    /// True if the node with the number `ancestor` is an ancestor of the other, or the same node.
    pub(super) fn is_ancestor(&self, ancestor: usize, number: usize) -> bool {
        (ancestor..=self.last[ancestor]).contains(&number)
    }
}
