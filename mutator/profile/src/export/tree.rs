//! The paths of a profile as one tree of names.

use super::model::{Model, Name};
use crate::profile::PathEntry;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A node of the tree.
#[derive(Debug)]
pub(super) struct Node {
    /// The node's name.
    pub(super) name: Name,
    /// The index of the parent, which precedes this node. `None` for a root.
    pub(super) parent: Option<usize>,
    /// The indexes of the nodes that this one calls.
    pub(super) children: Vec<usize>,
    /// The node's exclusive weights, for example one for each metric, in the metric's unit.
    pub(super) own: Vec<i128>,
    /// The node's inclusive weights, in the order of `own`. Empty before [`Tree::sum`].
    pub(super) all: Vec<i128>,
    /// True if paths end here, at a measured function. Paths only pass through other nodes.
    pub(super) is_end: bool,
}

/// A tree whose parents precede their children.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The nodes, parents before children.
    pub(super) nodes: Vec<Node>,
    /// The indexes of the nodes without a parent.
    pub(super) roots: Vec<usize>,
    /// The index of each node by its parent's index and its name.
    by_name: HashMap<(Option<usize>, Name), usize>,
    /// The number of weights of a node.
    kinds: usize,
}

impl Tree {
    /// Creates an empty tree whose nodes have `kinds` weights.
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            kinds,
            ..Self::default()
        }
    }

    /// The tree of `paths`, with its inclusive weights. `weigh` returns the weight of a path for
    /// the metric at an index below `kinds`.
    pub(super) fn of<'m>(
        model: &Model<'_>,
        paths: impl Iterator<Item = &'m PathEntry>,
        kinds: usize,
        weigh: impl Fn(&PathEntry, usize) -> i128,
    ) -> Self {
        let mut tree = Self::new(kinds);
        for path in paths {
            let weights: Vec<i128> = (0..kinds).map(|kind| weigh(path, kind)).collect();
            tree.add(&model.stack(path), &weights);
        }
        tree.sum();
        tree
    }

    /// Adds exclusive weights at the end of a stack, whose root comes first. Returns the index of
    /// the last node. `None` if the stack is empty.
    pub(super) fn add(&mut self, stack: &[Name], weights: &[i128]) -> Option<usize> {
        let mut at = None;
        for &name in stack {
            at = Some(self.child(at, name));
        }
        let node = &mut self.nodes[at?];
        node.is_end = true;
        for (own, weight) in node.own.iter_mut().zip(weights) {
            *own = own.saturating_add(*weight);
        }
        at
    }

    /// The indexes of the nodes from left to right as drawn: the sibling with the largest inclusive
    /// weight `kind` first, children before their parent. Requires [`Tree::sum`].
    pub(super) fn heaviest_first(&self, kind: usize) -> Vec<usize> {
        let sorted = |nodes: &[usize]| {
            let mut nodes = nodes.to_vec();
            nodes.sort_by_key(|&node| Reverse(self.nodes[node].all[kind]));
            nodes
        };
        let mut open = sorted(&self.roots);
        let mut order = Vec::with_capacity(self.nodes.len());
        // From right to left: the last sibling, then the subtrees before it.
        while let Some(node) = open.pop() {
            order.push(node);
            open.extend(sorted(&self.nodes[node].children));
        }
        order.reverse();
        order
    }

    /// The index of the child with this name, or of the root if `parent` is `None`. It is added if
    /// it is missing.
    fn child(&mut self, parent: Option<usize>, name: Name) -> usize {
        if let Some(&known) = self.by_name.get(&(parent, name)) {
            return known;
        }
        let place = self.nodes.len();
        self.nodes.push(Node {
            name,
            parent,
            children: Vec::new(),
            own: vec![0; self.kinds],
            all: Vec::new(),
            is_end: false,
        });
        self.by_name.insert((parent, name), place);
        match parent {
            Some(parent) => self.nodes[parent].children.push(place),
            None => self.roots.push(place),
        }
        place
    }

    /// Computes the inclusive weights of all nodes. They are missing before the first call.
    pub(super) fn sum(&mut self) {
        for node in &mut self.nodes {
            node.all = node.own.clone();
        }
        for place in (0..self.nodes.len()).rev() {
            let Some(parent) = self.nodes[place].parent else {
                continue;
            };
            // A parent precedes its children.
            let (before, from) = self.nodes.split_at_mut(place);
            for (sum, part) in before[parent].all.iter_mut().zip(&from[0].all) {
                *sum = sum.saturating_add(*part);
            }
        }
    }

    /// The sum of the inclusive weight `kind` over all roots. Requires [`Tree::sum`].
    pub(super) fn total(&self, kind: usize) -> i128 {
        let roots = self.roots.iter().map(|&root| self.nodes[root].all[kind]);
        roots.fold(0, i128::saturating_add)
    }

    /// Walks the tree from the roots. Calls `enter` before a node's children, with the node's index
    /// and true for the first sibling, and `leave` after them. Does not recurse.
    ///
    /// # Errors
    /// Returns the first error of `enter` or `leave`, which ends the walk.
    pub(super) fn walk<E>(
        &self,
        mut enter: impl FnMut(usize, &Node, bool) -> Result<(), E>,
        mut leave: impl FnMut(&Node) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut open: Vec<(usize, std::slice::Iter<'_, usize>)> = Vec::new();
        for (i, &root) in self.roots.iter().enumerate() {
            enter(root, &self.nodes[root], i == 0)?;
            open.push((root, self.nodes[root].children.iter()));
            while let Some((node, children)) = open.last_mut() {
                let is_first = children.len() == self.nodes[*node].children.len();
                match children.next() {
                    Some(&child) => {
                        enter(child, &self.nodes[child], is_first)?;
                        open.push((child, self.nodes[child].children.iter()));
                    }
                    None => {
                        leave(&self.nodes[*node])?;
                        open.pop();
                    }
                }
            }
        }
        Ok(())
    }
}
