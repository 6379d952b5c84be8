//! The paths of a profile as one tree of names.

use super::model::{Model, Name};
use crate::profile::PathEntry;
use std::cmp::Reverse;
use std::collections::HashMap;

/// One place in the tree.
#[derive(Debug)]
pub(super) struct Node {
    /// What it is called.
    pub(super) name: Name,
    /// The node that calls it, which stands before it; none for a root.
    pub(super) parent: Option<usize>,
    /// Those that it calls.
    pub(super) children: Vec<usize>,
    /// What it weighs by itself, by metric.
    pub(super) own: Vec<i128>,
    /// The same with all below it.
    pub(super) all: Vec<i128>,
    /// True if paths end there, at a measured function. At other nodes they pass through.
    pub(super) is_end: bool,
}

/// Nodes, each after its parent.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// All of them.
    pub(super) nodes: Vec<Node>,
    /// Those without a parent.
    pub(super) roots: Vec<usize>,
    by_name: HashMap<(Option<usize>, Name), usize>,
    kinds: usize,
}

impl Tree {
    /// A tree whose nodes have this many weights.
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            kinds,
            ..Self::default()
        }
    }

    /// The tree of `paths`, with what `weigh` says of each metric of a path.
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

    /// Adds weights at the end of a stack, whose root comes first. Returns the node there.
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

    /// The nodes from left to right in the picture: the heaviest sibling first, and each node after its
    /// children.
    pub(super) fn heaviest_first(&self, kind: usize) -> Vec<usize> {
        let sorted = |nodes: &[usize]| {
            let mut nodes = nodes.to_vec();
            nodes.sort_by_key(|&node| Reverse(self.nodes[node].all[kind]));
            nodes
        };
        let mut open = sorted(&self.roots);
        let mut order = Vec::with_capacity(self.nodes.len());
        // From right to left: the last of siblings, then the subtrees before it.
        while let Some(node) = open.pop() {
            order.push(node);
            open.extend(sorted(&self.nodes[node].children));
        }
        order.reverse();
        order
    }

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

    /// Adds up what is below each node.
    pub(super) fn sum(&mut self) {
        for node in &mut self.nodes {
            node.all = node.own.clone();
        }
        for place in (0..self.nodes.len()).rev() {
            let Some(parent) = self.nodes[place].parent else {
                continue;
            };
            // A node stands after its parent.
            let (before, from) = self.nodes.split_at_mut(place);
            for (sum, part) in before[parent].all.iter_mut().zip(&from[0].all) {
                *sum = sum.saturating_add(*part);
            }
        }
    }

    /// The sum of all roots.
    pub(super) fn total(&self, kind: usize) -> i128 {
        let roots = self.roots.iter().map(|&root| self.nodes[root].all[kind]);
        roots.fold(0, i128::saturating_add)
    }

    /// Calls `enter` and `leave` at each node, as one who walks it from the roots, without recursion.
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
