//! The lines that are visible: which nodes are open, and how they stand below each other.

use std::cmp::Ordering;

use regex::Regex;

use super::{Line, NodeId, ROOT, Shape, Split, Tree};

/// What a row shows: a node, or one of its lines where it is unfolded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) node: NodeId,
    /// Which of the node's sites.
    pub(crate) site: usize,
    /// Which of the lines of that.
    pub(crate) level: usize,
}

impl Key {
    /// What shows the beginning of a node, or all of it.
    pub(crate) fn of(node: NodeId) -> Self {
        Self {
            node,
            site: 0,
            level: 0,
        }
    }

    /// The same after a node has been split.
    pub(crate) fn after(self, split: Split) -> Self {
        if self.node != split.node {
            return self;
        }
        match self.site.checked_sub(split.sites) {
            Some(site) => Self { site, ..self },
            None => Self {
                node: split.upper,
                ..self
            },
        }
    }
}

/// One visible line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// How many branches it is below.
    pub(crate) indent: usize,
    /// The branches that go on further down: bit n for the one n levels from the left.
    pub(crate) rails: u64,
    /// True of the last child of its parent.
    pub(crate) is_last: bool,
    pub(crate) marker: Marker,
    /// True if all of the node is in this row.
    pub(crate) is_whole: bool,
    /// True if the row above has the same numbers.
    pub(crate) is_repeated: bool,
}

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// There is more below it that is not shown.
    Closed,
    /// What is below it is shown.
    Open,
    /// There is nothing below it.
    None,
}

impl Tree {
    /// The nodes below one that have paths which are shown, and functions that wait for their first call.
    pub(crate) fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let children = self.shown().trie.children(node);
        children.filter(|&child| self.counted(child).paths > 0 || self.awaits_calls(child))
    }

    /// The same with enough of their function.
    fn shown_children(&self, node: NodeId) -> Vec<NodeId> {
        let least = self.least_share();
        let is_enough = |&child: &NodeId| {
            least == 0.0 || node == ROOT || self.part(child, self.top_of(child)) >= least
        };
        self.children(node).filter(is_enough).collect()
    }

    /// How large a part of another node's one is: of its first metric, where there is one.
    fn part(&self, node: NodeId, whole: NodeId) -> f64 {
        let (part, whole) = if self.paths.metrics().is_empty() {
            (
                self.counted(node).calls as f64,
                self.counted(whole).calls as f64,
            )
        } else {
            (
                self.total(node, 0).sum() as f64,
                self.total(whole, 0).sum() as f64,
            )
        };
        if whole > 0.0 { part / whole } else { 1.0 }
    }

    /// The visible lines, in the order of `compare`.
    pub(crate) fn rows(&self, compare: impl Fn(NodeId, NodeId) -> Ordering) -> Vec<Row> {
        struct Next {
            node: NodeId,
            indent: usize,
            rails: u64,
            is_last: bool,
        }
        /// Deeper branches have no lines beside them.
        const RAILS: usize = 64;
        let mut rows = Vec::new();
        // Deepest last, so that no recursion over a path of any length is needed.
        let mut stack: Vec<Next> = Vec::new();
        let below = |node: NodeId, indent: usize, rails: u64, stack: &mut Vec<Next>| {
            let mut children = self.shown_children(node);
            children.sort_unstable_by(|&a, &b| compare(a, b));
            let next = |(n, node): (usize, NodeId)| Next {
                node,
                indent,
                rails,
                is_last: n == 0,
            };
            stack.extend(children.into_iter().rev().enumerate().map(next));
        };
        below(ROOT, 0, 0, &mut stack);
        let trie = &self.shown().trie;
        while let Some(next) = stack.pop() {
            let node = next.node;
            let has_more = !self.shown_children(node).is_empty();
            let is_open = trie.is_open(node);
            let marker = match (has_more, is_open) {
                (false, _) => Marker::None,
                (true, true) => Marker::Open,
                (true, false) => Marker::Closed,
            };
            let is_repeated = trie.parent(node).is_some_and(|parent| {
                let (node, parent) = (self.counted(node), self.counted(parent));
                (node.paths, node.calls) == (parent.paths, parent.calls)
            });
            let lines = self.lines_of(node);
            let is_whole = lines.len() == 1 || !trie.is_unfolded(node);
            let shown = if is_whole { 1 } else { lines.len() };
            for (n, &(site, level)) in lines[..shown].iter().enumerate() {
                rows.push(Row {
                    key: Key { node, site, level },
                    indent: next.indent,
                    rails: next.rails,
                    is_last: next.is_last,
                    marker: if n + 1 == shown { marker } else { Marker::None },
                    is_whole,
                    is_repeated: is_repeated || n > 0,
                });
            }
            if is_open && has_more {
                let own = match next.indent {
                    0 => 0,
                    indent if next.is_last || indent > RAILS => 0,
                    indent => 1 << (indent - 1),
                };
                below(node, next.indent + 1, next.rails | own, &mut stack);
            }
        }
        rows
    }

    /// All nodes that could be shown, as they would stand if all of them were open.
    pub(crate) fn in_order(&self, compare: impl Fn(NodeId, NodeId) -> Ordering) -> Vec<NodeId> {
        let mut all = Vec::new();
        let mut stack = vec![ROOT];
        while let Some(node) = stack.pop() {
            if node != ROOT {
                all.push(node);
            }
            let mut children = self.shown_children(node);
            children.sort_unstable_by(|&a, &b| compare(b, a));
            stack.extend(children);
        }
        all
    }

    /// True if a line of a node has what is looked for in its name.
    pub(crate) fn has(&self, node: NodeId, sought: &Regex) -> bool {
        let mut lines = self
            .sites(node)
            .iter()
            .flat_map(|&site| self.site(site).lines.iter());
        lines.any(|line| sought.is_match(&line.name))
    }

    /// Opens what a node is below.
    pub(crate) fn reveal(&mut self, node: NodeId) {
        let mut at = self.parent(node);
        while let Some(above) = at {
            self.shown_mut().trie.set_open(above, true);
            at = self.parent(above);
        }
    }

    /// Where each line of a node is: which of its sites, and which of the lines of that.
    pub(crate) fn lines_of(&self, node: NodeId) -> Vec<(usize, usize)> {
        let sites = self.sites(node).iter().enumerate();
        let of = |(n, &site)| (0..self.site(site).lines.len()).map(move |level| (n, level));
        let mut lines: Vec<_> = sites.flat_map(of).collect();
        // From the root inlined functions are below those that they are in.
        if self.shape() == Shape::FromRoot {
            lines.sort_by_key(|&(site, level)| (site, usize::MAX - level));
        }
        lines
    }

    /// One line of a node.
    pub(crate) fn line(&self, key: Key) -> Option<&Line> {
        let site = *self.sites(key.node).get(key.site)?;
        self.site(site).lines.get(key.level)
    }

    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        self.shown().trie.is_open(node) && self.children(node).next().is_some()
    }

    pub(crate) fn close(&mut self, node: NodeId) {
        self.shown_mut().trie.set_open(node, false);
    }

    /// Shows what is below a node; false where that is shown, or there is nothing.
    pub(crate) fn open(&mut self, node: NodeId) -> bool {
        let is_new = !self.shown().trie.is_open(node) && self.children(node).next().is_some();
        self.shown_mut().trie.set_open(node, true);
        is_new
    }

    /// True if a node has several lines and each has a row of its own.
    pub(crate) fn is_unfolded(&self, node: NodeId) -> bool {
        self.shown().trie.is_unfolded(node) && self.lines_of(node).len() > 1
    }

    /// Gives each line of a node a row of its own, or not.
    pub(crate) fn unfold(&mut self, node: NodeId, is_unfolded: bool) {
        self.shown_mut().trie.set_unfolded(node, is_unfolded);
    }

    /// The other of the two.
    pub(crate) fn fold_or_unfold(&mut self, node: NodeId) {
        self.unfold(node, !self.is_unfolded(node));
    }

    /// Opens the costliest of what is below a node, and so on.
    pub(crate) fn open_hottest(&mut self, mut node: NodeId, metric: Option<usize>) {
        loop {
            self.shown_mut().trie.set_open(node, true);
            let cost = |&node: &NodeId| {
                let sum = metric.map_or(0, |metric| self.total(node, metric).sum());
                (sum, self.counted(node).calls)
            };
            match self.children(node).max_by_key(cost) {
                Some(child) => node = child,
                None => return,
            }
        }
    }

    /// Opens or closes all nodes.
    pub(crate) fn open_all(&mut self, is_open: bool) {
        let nodes = self.shown().trie.len() as NodeId;
        for node in 1..nodes {
            self.shown_mut().trie.set_open(node, is_open);
        }
    }

    /// Opens the costliest paths where there are calls for the first time: later it is the user's choice.
    pub(super) fn open_first(&mut self) {
        /// With more than so many only the costliest one is opened.
        const FEW: usize = 6;
        let tops = self.children(ROOT);
        let tops: Vec<NodeId> = tops.filter(|&top| self.counted(top).paths > 0).collect();
        let has_metric = !self.paths.metrics().is_empty();
        let metric = has_metric.then_some(0);
        let shape = self.shape();
        let is_new =
            |top: &NodeId| self.counted(*top).calls > 0 && !self.begun.contains(&(shape, *top));
        let mut new: Vec<NodeId> = tops.iter().copied().filter(is_new).collect();
        let is_first = !self.begun.iter().any(|&(of, _)| of == shape);
        self.begun.extend(new.iter().map(|&top| (shape, top)));
        if tops.len() > FEW && is_first {
            let cost = |&top: &NodeId| (metric.map(|m| self.total(top, m).sum()), top);
            new = new.iter().copied().max_by_key(cost).into_iter().collect();
        }
        for top in new {
            self.open_hottest(top, metric);
        }
    }
}
