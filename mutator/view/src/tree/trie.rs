//! A radix tree of paths: paths share their beginnings, and each node is a sequence of sites
//! without a fork.
//!
//! Nodes are never removed and keep their identity, so that open and selected nodes stay so. If a
//! new path leaves a sequence in the middle, the node is split: a new node takes the first part.

use rustc_hash::FxHashMap;

use super::sites::SiteId;

/// A node. The number is valid as long as the tree.
pub(crate) type NodeId = u32;

/// The start of all paths. It is not shown in a row.
pub(crate) const ROOT: NodeId = 0;
/// No node.
const NONE: NodeId = u32::MAX;

struct Node {
    parent: NodeId,
    /// The first of the node's children, or `NONE`.
    first: NodeId,
    /// The neighbor after this node among the children of its parent, or `NONE`.
    next: NodeId,
    /// The neighbor before this node among the children of its parent, or `NONE`.
    previous: NodeId,
    /// The index of the node's first site in [`Trie::sites`].
    from: u32,
    /// The number of the node's sites.
    len: u32,
    is_open: bool,
    is_unfolded: bool,
}

/// A split of a node: its first `sites` sites are now those of `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) node: NodeId,
    pub(crate) upper: NodeId,
    pub(crate) sites: usize,
}

/// The radix tree.
pub(crate) struct Trie {
    nodes: Vec<Node>,
    sites: Vec<SiteId>,
    /// For a node and a site, the node's child that begins with the site.
    by_site: FxHashMap<(NodeId, SiteId), NodeId>,
    /// The splits that have not been taken.
    splits: Vec<Split>,
    /// The nodes, parents before children. Empty if the order has to be recomputed.
    order: Vec<NodeId>,
}

impl Default for Trie {
    fn default() -> Self {
        let root = Node {
            parent: NONE,
            first: NONE,
            next: NONE,
            previous: NONE,
            from: 0,
            len: 0,
            is_open: true,
            is_unfolded: false,
        };
        Self {
            nodes: vec![root],
            sites: Vec::new(),
            by_site: FxHashMap::default(),
            splits: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl Trie {
    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// The sites of a node itself.
    pub(crate) fn sites(&self, id: NodeId) -> &[SiteId] {
        let Node { from, len, .. } = *self.node(id);
        &self.sites[from as usize..][..len as usize]
    }

    /// The parent. `None` for the first node of a path.
    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        let parent = self.node(id).parent;
        (parent != ROOT && parent != NONE).then_some(parent)
    }

    /// The children of a node, the latest first.
    pub(crate) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let some = |id: NodeId| (id != NONE).then_some(id);
        std::iter::successors(some(self.node(id).first), move |&id| {
            some(self.node(id).next)
        })
    }

    pub(crate) fn is_open(&self, id: NodeId) -> bool {
        self.node(id).is_open
    }

    pub(crate) fn set_open(&mut self, id: NodeId, is_open: bool) {
        self.node_mut(id).is_open = is_open;
    }

    /// True if each site of a node has its own row.
    pub(crate) fn is_unfolded(&self, id: NodeId) -> bool {
        self.node(id).is_unfolded
    }

    pub(crate) fn set_unfolded(&mut self, id: NodeId, is_unfolded: bool) {
        self.node_mut(id).is_unfolded = is_unfolded;
    }

    /// Takes the splits since the last call.
    pub(super) fn take_splits(&mut self) -> Vec<Split> {
        std::mem::take(&mut self.splits)
    }

    /// Inserts a path and returns the node at which it ends. Sites that are `alone` have their own
    /// nodes.
    pub(super) fn insert(&mut self, path: &[SiteId], is_alone: impl Fn(SiteId) -> bool) -> NodeId {
        let mut at = ROOT;
        let mut rest = path;
        while let Some(&next) = rest.first() {
            let taken = match self.by_site.get(&(at, next)) {
                Some(&child) => {
                    let sites = self.sites(child);
                    let common = sites.iter().zip(rest).take_while(|(a, b)| a == b).count();
                    at = if common < sites.len() {
                        self.split(child, common)
                    } else {
                        child
                    };
                    common
                }
                None => {
                    let further = rest[1..].iter().position(|&site| is_alone(site));
                    let stretch = if is_alone(next) {
                        1
                    } else {
                        further.map_or(rest.len(), |n| n + 1)
                    };
                    at = self.push(at, &rest[..stretch]);
                    stretch
                }
            };
            rest = &rest[taken..];
        }
        at
    }

    /// Adds a child with these sites to a node, regardless of its other children. Returns the
    /// child.
    pub(super) fn push(&mut self, parent: NodeId, sites: &[SiteId]) -> NodeId {
        let id = self.nodes.len() as NodeId;
        let next = std::mem::replace(&mut self.node_mut(parent).first, id);
        if next != NONE {
            self.node_mut(next).previous = id;
        }
        make_room(&mut self.nodes, 1);
        self.nodes.push(Node {
            parent,
            first: NONE,
            next,
            previous: NONE,
            from: self.sites.len() as u32,
            len: sites.len() as u32,
            is_open: false,
            is_unfolded: false,
        });
        make_room(&mut self.sites, sites.len());
        self.sites.extend_from_slice(sites);
        if let Some(&site) = sites.first() {
            self.by_site.insert((parent, site), id);
        }
        self.order.clear();
        id
    }

    /// Moves the first `at` sites of a node to a new node above it. Returns the new node.
    fn split(&mut self, id: NodeId, at: usize) -> NodeId {
        let upper = self.nodes.len() as NodeId;
        let sites = self.sites(id);
        let (first, below) = (sites.first().copied(), sites.get(at).copied());
        let node = self.node_mut(id);
        let from = node.from;
        node.from += at as u32;
        node.len -= at as u32;
        let Node {
            parent,
            next,
            previous,
            is_open,
            is_unfolded,
            ..
        } = *node;
        (node.parent, node.next, node.previous) = (upper, NONE, NONE);
        for (neighbour, is_before) in [(previous, true), (next, false)] {
            if neighbour != NONE {
                let neighbour = self.node_mut(neighbour);
                if is_before {
                    neighbour.next = upper
                } else {
                    neighbour.previous = upper
                }
            }
        }
        if self.node(parent).first == id {
            self.node_mut(parent).first = upper;
        }
        // Only the root has no sites.
        if let (Some(first), Some(below)) = (first, below) {
            self.by_site.insert((parent, first), upper);
            self.by_site.insert((upper, below), id);
        }
        make_room(&mut self.nodes, 1);
        self.nodes.push(Node {
            parent,
            first: id,
            next,
            previous,
            from,
            len: at as u32,
            is_open,
            is_unfolded,
        });
        self.splits.push(Split {
            node: id,
            upper,
            sites: at,
        });
        self.order.clear();
        upper
    }

    /// The nodes, parents before children. Empty if a node was added since the last
    /// [`order`](Self::order).
    pub(super) fn ordered(&self) -> &[NodeId] {
        &self.order
    }

    /// The parent, which may be the root. `None` for the root.
    pub(super) fn above(&self, id: NodeId) -> Option<NodeId> {
        let parent = self.node(id).parent;
        (parent != NONE).then_some(parent)
    }

    /// Recomputes the order of all nodes, parents before children, if a node was added.
    pub(super) fn order(&mut self) {
        if self.order.is_empty() {
            let mut order = Vec::with_capacity(self.nodes.len());
            let mut stack = vec![ROOT];
            while let Some(id) = stack.pop() {
                order.push(id);
                stack.extend(self.children(id));
            }
            self.order = order;
        }
    }
}

/// Reserves room in `all` for `more` items without doubling the capacity, because there are many
/// items.
fn make_room<T>(all: &mut Vec<T>, more: usize) {
    if all.len() + more > all.capacity() {
        all.reserve_exact(all.len() / 4 + more.max(16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path_to(trie: &Trie, leaf: NodeId) -> Vec<SiteId> {
        let chain = std::iter::successors(Some(leaf), |&id| trie.parent(id));
        let mut nodes: Vec<NodeId> = chain.collect();
        nodes.reverse();
        nodes
            .iter()
            .flat_map(|&id| trie.sites(id))
            .copied()
            .collect()
    }

    #[test]
    fn a_stretch_is_split_where_a_path_leaves_it() {
        let mut trie = Trie::default();
        let alone = |site| site == 1;
        let long = trie.insert(&[1, 2, 3, 4], alone);
        trie.set_open(long, true);
        assert_eq!((trie.len(), trie.sites(long)), (3, &[2, 3, 4][..]));
        let other = trie.insert(&[1, 2, 5], alone);
        assert_eq!(trie.sites(long), [3, 4]);
        assert_eq!(trie.sites(other), [5]);
        let upper = trie.parent(long).unwrap();
        assert_eq!(trie.sites(upper), [2]);
        assert!(trie.is_open(upper), "what was to be seen still is");
        assert_eq!(
            trie.take_splits(),
            [Split {
                node: long,
                upper,
                sites: 1
            }]
        );
        // A path that ends where others continue.
        assert_eq!(trie.insert(&[1, 2], alone), upper);
        assert_eq!(trie.insert(&[1, 2, 3, 4], alone), long);
    }

    proptest! {
        #[test]
        fn every_path_leads_to_its_own_node(
            paths in prop::collection::vec(prop::collection::vec(0u32..4, 1..8), 1..60),
        ) {
            let mut trie = Trie::default();
            let leaves: Vec<NodeId> = paths.iter().map(|p| trie.insert(p, |site| site == 0)).collect();
            for (path, &leaf) in paths.iter().zip(&leaves) {
                prop_assert_eq!(&path_to(&trie, leaf), path);
                prop_assert_eq!(trie.insert(path, |site| site == 0), leaf);
            }
            trie.order();
            let order = trie.ordered();
            prop_assert_eq!(order.len(), trie.len());
            let place = |id: NodeId| order.iter().position(|&o| o == id);
            for id in 1..trie.len() as NodeId {
                let parent = trie.parent(id).unwrap_or(ROOT);
                prop_assert!(place(parent) < place(id));
                prop_assert!(trie.children(parent).any(|child| child == id));
                let sites = trie.sites(id);
                prop_assert!(!sites.is_empty() && (sites.len() == 1 || !sites.contains(&0)));
            }
        }
    }
}
