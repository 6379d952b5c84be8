//! The visible rows: open nodes and their arrangement.

use std::cmp::Ordering;

use regex::Regex;

use super::{Line, NodeId, ROOT, Shape, Split, Tree};

/// The subject of a row: a node, or one of its lines if it is unfolded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    pub(crate) node: NodeId,
    /// The index in the node's sites.
    pub(crate) site: usize,
    /// The index in the site's lines.
    pub(crate) level: usize,
}

impl RowKey {
    /// The row that shows a whole node or its first line.
    pub(crate) fn of(node: NodeId) -> Self {
        Self {
            node,
            site: 0,
            level: 0,
        }
    }

    /// The key of the same line after a node has been split.
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

/// A visible line of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: RowKey,
    /// The number of branches above the row.
    pub(crate) indent: usize,
    /// The branches that continue further down: bit n for the branch n levels from the left.
    pub(crate) rails: u64,
    /// True for the last child of its parent.
    pub(crate) is_last: bool,
    pub(crate) marker: Marker,
    /// True if the row shows the whole node.
    pub(crate) is_whole: bool,
    /// True if the row above has the same numbers.
    pub(crate) is_repeated: bool,
}

/// The mark before a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The row has children that are not shown.
    Closed,
    /// The row's children are shown.
    Open,
    /// The row has no children.
    None,
}

impl Tree {
    /// The children of a node with shown paths, and functions that wait for their first call.
    pub(crate) fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let children = self.shown().trie.children(node);
        children.filter(|&child| self.counted(child).paths > 0 || self.awaits_calls(child))
    }

    /// The children with a sufficient share of their function.
    fn shown_children(&self, node: NodeId) -> Vec<NodeId> {
        let least = self.least_share();
        let is_enough = |&child: &NodeId| {
            least == 0.0 || node == ROOT || self.part(child, self.top_of(child)) >= least
        };
        self.children(node).filter(is_enough).collect()
    }

    /// The share of a node in another one, by the first metric, or by calls if there is no metric.
    /// 1 if the other one is 0.
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

    /// The visible rows, in the order of `compare`.
    pub(crate) fn rows(&self, compare: impl Fn(NodeId, NodeId) -> Ordering) -> Vec<Row> {
        struct Next {
            node: NodeId,
            indent: usize,
            rails: u64,
            is_last: bool,
        }
        /// Deeper branches have no tree lines.
        const RAILS: usize = 64;
        let mut rows = Vec::new();
        // The next row is last. A stack avoids recursion over paths of any length.
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
                    key: RowKey { node, site, level },
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

    /// All nodes that could be shown, in the order that they would have if all were open.
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

    /// True if the expression matches the name of one of the node's lines.
    pub(crate) fn has(&self, node: NodeId, sought: &Regex) -> bool {
        let mut lines = self
            .sites(node)
            .iter()
            .flat_map(|&site| self.site(site).lines.iter());
        lines.any(|line| sought.is_match(&line.name))
    }

    /// Opens the nodes above a node.
    pub(crate) fn reveal(&mut self, node: NodeId) {
        let mut at = self.parent(node);
        while let Some(above) = at {
            self.shown_mut().trie.set_open(above, true);
            at = self.parent(above);
        }
    }

    /// The lines of a node, as indexes of sites and of their lines.
    pub(crate) fn lines_of(&self, node: NodeId) -> Vec<(usize, usize)> {
        let sites = self.sites(node).iter().enumerate();
        let of = |(n, &site)| (0..self.site(site).lines.len()).map(move |level| (n, level));
        let mut lines: Vec<_> = sites.flat_map(of).collect();
        // From the root, inlined functions follow the function that contains them.
        if self.shape() == Shape::FromRoot {
            lines.sort_by_key(|&(site, level)| (site, usize::MAX - level));
        }
        lines
    }

    /// A line of a node. `None` if the node has no such line.
    pub(crate) fn line(&self, key: RowKey) -> Option<&Line> {
        let site = *self.sites(key.node).get(key.site)?;
        self.site(site).lines.get(key.level)
    }

    /// True if a node has children and they are shown.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        self.shown().trie.is_open(node) && self.children(node).next().is_some()
    }

    /// Hides the children of a node.
    pub(crate) fn close(&mut self, node: NodeId) {
        self.shown_mut().trie.set_open(node, false);
    }

    /// Opens a node. Returns false if it was open before or has no children.
    pub(crate) fn open(&mut self, node: NodeId) -> bool {
        let is_new = !self.shown().trie.is_open(node) && self.children(node).next().is_some();
        self.shown_mut().trie.set_open(node, true);
        is_new
    }

    /// True if a node has several lines and each has its own row.
    pub(crate) fn is_unfolded(&self, node: NodeId) -> bool {
        self.shown().trie.is_unfolded(node) && self.lines_of(node).len() > 1
    }

    /// Sets whether each line of a node has its own row.
    pub(crate) fn unfold(&mut self, node: NodeId, is_unfolded: bool) {
        self.shown_mut().trie.set_unfolded(node, is_unfolded);
    }

    /// Unfolds a folded node, and vice versa.
    pub(crate) fn fold_or_unfold(&mut self, node: NodeId) {
        self.unfold(node, !self.is_unfolded(node));
    }

    /// Opens a node, its costliest child, that one's costliest child, and so on. The cost is the
    /// sum of the metric with this index, or the number of calls without one.
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

    /// Opens the costliest paths of branches that have calls for the first time. Later, the user
    /// decides.
    pub(super) fn open_first(&mut self) {
        /// With more top nodes, only the costliest is opened.
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
