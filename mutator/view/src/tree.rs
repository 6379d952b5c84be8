//! All call paths of the samples, as the displayed tree with numbers at its nodes.

mod earlier;
mod filter;
mod numbers;
mod rows;
mod shape;
mod sites;
mod trie;

use std::cell::RefCell;

use rustc_hash::{FxHashMap, FxHashSet};

pub(super) use filter::{Filter, expression, typed};
pub(super) use numbers::{Counted, Span, Total};
pub(super) use rows::{Marker, Row, RowKey};
pub(super) use shape::Shape;
pub(super) use sites::{Line, Site, SiteId};
pub(super) use trie::{NodeId, ROOT, Split};

use ipath_profile::report::Titles;
use ipath_profile::{Changed, Distribution, Gathered, Profile};
use numbers::Paths;
use sites::Sites;
use trie::Trie;

const NONE: u32 = u32::MAX;

/// The paths in one shape.
#[derive(Default)]
struct Shaped {
    trie: Trie,
    /// The node at which each path ends.
    leaves: Vec<NodeId>,
    /// For each node, the first path that ends at it, or `NONE`.
    first: Vec<u32>,
    /// For each path, the next path that ends at the same node, or `NONE`.
    next: Vec<u32>,
}

impl Shaped {
    /// Adds the next path.
    fn push(&mut self, leaf: NodeId) {
        let path = self.leaves.len() as u32;
        self.leaves.push(leaf);
        self.first.resize(self.trie.len(), NONE);
        self.next
            .push(std::mem::replace(&mut self.first[leaf as usize], path));
    }

    fn forget_paths(&mut self) {
        self.leaves.clear();
        self.first.clear();
        self.next.clear();
    }

    /// The indexes of the paths that end at a node.
    fn paths_at(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let some = |path: u32| (path != NONE).then_some(path);
        let first = self.first.get(node as usize).copied().unwrap_or(NONE);
        std::iter::successors(some(first), move |&path| some(self.next[path as usize]))
            .map(|path| path as usize)
    }
}

/// The displayed tree.
#[derive(Default)]
pub(super) struct Tree {
    sites: Sites,
    paths: Paths,
    /// The paths from the function outwards, which identify them.
    callers: Shaped,
    /// The paths in the displayed shape, if that is another one.
    other: Shaped,
    shape: Shape,
    filters: Vec<Filter>,
    /// For each path, true if it passes the filters.
    kept: Vec<bool>,
    /// For each path, true if it is not shown without calls: those inside a function whose number
    /// is not known yet.
    passing: Vec<bool>,
    /// The counts of each node.
    counted: Vec<Counted>,
    /// The totals of each node: one for each metric, the metrics of a node beside each other.
    totals: Vec<Total>,
    /// The distributions that have been requested, by node and index of the metric.
    distributions: RefCell<FxHashMap<(NodeId, usize), Distribution>>,
    /// Calls per second at the last samples, for the nodes on the screen.
    trends: FxHashMap<NodeId, Vec<f32>>,
    /// The time between the last two samples, in nanoseconds.
    interval: Option<u64>,
    /// The nodes of functions, which may have no path yet, in the callers' shape.
    functions: FxHashSet<NodeId>,
    /// The top nodes that have had calls. From then on, the user decides what is open below them.
    begun: FxHashSet<(Shape, NodeId)>,
}

impl Tree {
    fn shown(&self) -> &Shaped {
        match self.shape {
            Shape::Callers => &self.callers,
            _ => &self.other,
        }
    }

    fn shown_mut(&mut self) -> &mut Shaped {
        match self.shape {
            Shape::Callers => &mut self.callers,
            _ => &mut self.other,
        }
    }

    /// True if the paths of each process are kept apart.
    pub(super) fn is_of_processes(&self) -> bool {
        self.sites.has_processes()
    }

    /// The displayed shape.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// The displayed span.
    pub(super) fn span(&self) -> Span {
        self.paths.span()
    }

    pub(super) fn site(&self, site: SiteId) -> &Site {
        self.sites.get(site)
    }

    /// Takes in a sample.
    pub(super) fn sample(&mut self, profile: &Profile, changed: &Changed) {
        let is_new = matches!(changed, Changed::All);
        let before = self.paths.at();
        let elapsed = profile.session.elapsed_ns;
        self.interval = before.map(|before| elapsed.saturating_sub(before));
        self.sites.learn(profile, is_new);
        let known = if is_new {
            self.arrange_anew(profile)
        } else {
            self.add_paths(profile, self.callers.leaves.len());
            Vec::new()
        };
        self.paths.update(profile, changed, &known);
        self.add_functions(profile, is_new);
        self.settle();
        self.follow_trends();
        self.open_first();
    }

    /// Rebuilds the paths from another profile. Returns the previous index of each path.
    fn arrange_anew(&mut self, profile: &Profile) -> Vec<Option<u32>> {
        let mut old: FxHashMap<NodeId, Vec<u32>> = FxHashMap::default();
        for (path, &leaf) in self.callers.leaves.iter().enumerate().rev() {
            old.entry(leaf).or_default().push(path as u32);
        }
        // Splits do not change leaves.
        self.callers.forget_paths();
        self.passing.clear();
        self.forget_shape();
        self.add_paths(profile, 0);
        let leaves = self.callers.leaves.iter();
        leaves.map(|leaf| old.get_mut(leaf)?.pop()).collect()
    }

    fn add_paths(&mut self, profile: &Profile, from: usize) {
        let (threads, titles) = (profile.thread_names(), Titles::of(profile));
        let mut path = Vec::new();
        for entry in &profile.paths[from..] {
            path.clear();
            path.push(self.sites.of_function(entry.function));
            if let Some(apart) = profile.apart(entry) {
                path.push(self.sites.apart(apart));
            }
            let frames = entry.stack.iter().map(|&frame| self.sites.of_frame(frame));
            path.extend(frames);
            if let Some(unknown) = profile.unknown_callers(entry) {
                path.push(self.sites.unknown(unknown));
            }
            if let Some(tid) = entry.thread {
                let name = threads.get(&tid).copied();
                path.push(self.sites.thread(tid, name));
            } else if let Some(index) = entry.process {
                path.push(self.sites.process(profile, &titles, index));
            }
            self.passing.push(profile.is_passing(entry));
            let is_alone = |site| self.sites.get(site).is_alone;
            let leaf = self.callers.trie.insert(&path, is_alone);
            self.callers.push(leaf);
            self.put(&path);
        }
        // Threads can change their names.
        for thread in &profile.threads {
            self.sites.thread(thread.tid, Some(&thread.name));
        }
    }

    /// Adds the functions, including those without calls.
    fn add_functions(&mut self, profile: &Profile, anew: bool) {
        if anew {
            self.functions.clear();
        } else if self.functions.len() == profile.functions.len() {
            return;
        }
        for index in 0..profile.functions.len() {
            let site = self.sites.of_function(index);
            let node = self.callers.trie.insert(&[site], |_| true);
            self.functions.insert(node);
        }
    }

    /// True for the node of a function if functions are shown even without calls: in the shape of
    /// callers, without filters.
    fn awaits_calls(&self, node: NodeId) -> bool {
        self.shape == Shape::Callers && self.filters.is_empty() && self.functions.contains(&node)
    }

    /// Adds a path to the displayed shape, and applies the filters to it.
    fn put(&mut self, path: &[SiteId]) {
        if self.shape != Shape::Callers {
            let shaped = self.shape.of(path, &self.sites);
            let is_alone = |site| self.sites.get(site).is_alone;
            let leaf = match self.shape {
                Shape::Flat => self.other.trie.push(ROOT, &shaped),
                _ => self.other.trie.insert(&shaped, is_alone),
            };
            self.other.push(leaf);
        }
        let kept = self.keeps(path);
        self.kept.push(kept);
    }

    /// True if all filters keep a path, given from its function outwards.
    fn keeps(&self, path: &[SiteId]) -> bool {
        let shaped = |shape: Shape| shape.of(path, &self.sites);
        let mut filters = self.filters.iter();
        filters.all(|filter| filter.keeps(&self.sites, path, shaped))
    }

    /// The sites of a path, from its function outwards.
    fn path(&self, path: usize) -> Vec<SiteId> {
        let leaf = self.callers.leaves[path];
        path_to(&self.callers.trie, leaf)
    }

    /// Changes the displayed shape.
    pub(super) fn set_shape(&mut self, shape: Shape) {
        self.shape = shape;
        self.other = Shaped::default();
        self.trends.clear();
        self.rearrange();
        // The open nodes of other shapes are not kept.
        self.begun.retain(|&(of, _)| of == Shape::Callers);
        self.open_first();
    }

    /// Removes the paths from the displayed shape. Nothing is kept of a flat shape, because each
    /// path has its own node.
    fn forget_shape(&mut self) {
        self.other.forget_paths();
        if self.shape == Shape::Flat {
            self.other = Shaped::default();
        }
        self.kept.clear();
    }

    /// Rebuilds the displayed shape.
    fn rearrange(&mut self) {
        self.forget_shape();
        for path in 0..self.callers.leaves.len() {
            let sites = self.path(path);
            self.put(&sites);
        }
        self.settle();
    }

    /// The filters, in the order in which they were added.
    pub(super) fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// The description of a filter for the user.
    pub(super) fn describe(&self, filter: &Filter) -> String {
        filter.describe(&self.sites)
    }

    /// Adds a filter. Only paths that pass all filters are shown.
    pub(super) fn add_filter(&mut self, filter: Filter) {
        self.filters.push(filter);
        self.rearrange();
    }

    /// Removes the last filter. Returns false if there is none.
    pub(super) fn drop_filter(&mut self) -> bool {
        let dropped = self.filters.pop().is_some();
        if dropped {
            self.rearrange();
        }
        dropped
    }

    /// A filter that shows only the paths below a node.
    pub(super) fn zoom(&self, node: NodeId) -> Filter {
        Filter::Zoom(self.shape, path_to(&self.shown().trie, node))
    }

    /// The smallest share of their function's cost that rows must have, from 0 to 1.
    fn least_share(&self) -> f64 {
        let shares = self.filters.iter().map(|filter| match filter {
            Filter::Share(share) => *share,
            _ => 0.0,
        });
        shares.fold(0.0, f64::max)
    }

    /// Changes the displayed span.
    pub(super) fn show_span(&mut self, span: Span) {
        self.paths.show(span);
        self.settle();
    }

    /// Sets the mark, and shows the time since then.
    pub(super) fn mark(&mut self) {
        self.paths.mark();
        self.settle();
    }

    /// True if the mark is set.
    pub(super) fn has_mark(&self) -> bool {
        self.paths.has_mark()
    }

    /// The length of the displayed span, in nanoseconds.
    pub(super) fn lasted(&self) -> u64 {
        self.paths.lasted()
    }

    /// Adds up the numbers of the paths at the nodes.
    fn settle(&mut self) {
        let metrics = self.paths.metrics().len();
        let shaped = match self.shape {
            Shape::Callers => &mut self.callers,
            _ => &mut self.other,
        };
        let nodes = shaped.trie.len();
        // Allocate no more than needed: there are many nodes.
        self.counted.clear();
        self.counted.reserve_exact(nodes);
        self.counted.resize(nodes, Counted::default());
        self.totals.clear();
        self.totals.reserve_exact(nodes * metrics);
        self.totals.resize(nodes * metrics, Total::default());
        for (path, &leaf) in shaped.leaves.iter().enumerate() {
            let counted = self.paths.counted(path);
            if !self.kept[path] || self.passing[path] && counted.calls == 0 {
                continue;
            }
            let leaf = leaf as usize;
            self.counted[leaf].add(&counted);
            for metric in 0..metrics {
                self.totals[leaf * metrics + metric].add(&self.paths.total(path, metric));
            }
        }
        shaped.trie.order();
        for &node in shaped.trie.ordered().iter().rev() {
            let Some(parent) = shaped.trie.above(node) else {
                continue;
            };
            let (node, parent) = (node as usize, parent as usize);
            let counted = self.counted[node];
            if counted.paths == 0 {
                continue;
            }
            self.counted[parent].add(&counted);
            for metric in 0..metrics {
                let total = self.totals[node * metrics + metric];
                self.totals[parent * metrics + metric].add(&total);
            }
        }
        let is_of_threads = |node: NodeId| {
            let mut sites = shaped.trie.sites(node).iter();
            sites.all(|&site| self.sites.get(site).is_thread())
        };
        for &node in shaped.trie.ordered() {
            let mut children = shaped.trie.children(node);
            let is_above = match self.shape {
                Shape::FromRoot => children.any(|child| !is_of_threads(child)),
                _ => is_of_threads(node) && children.next().is_some(),
            };
            let totals = node as usize * metrics..(node as usize + 1) * metrics;
            if is_above {
                self.totals[totals].iter_mut().for_each(Total::set_above);
            }
        }
        self.distributions.borrow_mut().clear();
    }

    /// The counts of a node in the displayed span. 0 for an unknown node.
    pub(super) fn counted(&self, node: NodeId) -> Counted {
        self.counted.get(node as usize).copied().unwrap_or_default()
    }

    /// The totals of a node in the displayed span. Empty for an unknown node or metric.
    pub(super) fn total(&self, node: NodeId, metric: usize) -> Total {
        let metrics = self.paths.metrics().len();
        let at = (metric < metrics).then_some(node as usize * metrics + metric);
        let total = at.and_then(|at| self.totals.get(at));
        total.copied().unwrap_or_default()
    }

    /// The distribution of a metric's values at a node in the displayed span.
    pub(super) fn distribution(&self, node: NodeId, metric: usize) -> Distribution {
        let mut all = self.distributions.borrow_mut();
        if let Some(known) = all.get(&(node, metric)) {
            return known.clone();
        }
        let shaped = self.shown();
        let mut sum = Gathered::default();
        let mut stack = vec![node];
        while let Some(at) = stack.pop() {
            if self.counted(at).paths == 0 {
                continue;
            }
            if let Some(known) = all.get(&(at, metric)) {
                sum.add(known);
                continue;
            }
            for path in shaped.paths_at(at).filter(|&path| self.kept[path]) {
                self.paths.add_values(path, metric, &mut sum);
            }
            stack.extend(shaped.trie.children(at));
        }
        let sum = sum.all();
        all.insert((node, metric), sum.clone());
        sum
    }

    /// Calls of a node per second between the last two samples. `None` after only one sample.
    pub(super) fn rate(&self, node: NodeId) -> Option<f64> {
        let ns = self.interval.filter(|&ns| ns > 0)?;
        Some(self.counted(node).new as f64 * 1e9 / ns as f64)
    }

    /// Records the calls per second of `nodes` from now on, and of no other nodes.
    pub(super) fn look_at(&mut self, nodes: impl Iterator<Item = NodeId>) {
        let wanted: FxHashMap<NodeId, Vec<f32>> = nodes
            .map(|node| (node, self.trends.remove(&node).unwrap_or_default()))
            .collect();
        self.trends = wanted;
    }

    /// Adds the calls per second between the last two samples to the trends.
    fn follow_trends(&mut self) {
        /// The number of samples kept: a minute at one per second.
        const SAMPLES: usize = 60;
        let mut trends = std::mem::take(&mut self.trends);
        for (&node, trend) in &mut trends {
            let Some(rate) = self.rate(node) else {
                continue;
            };
            if trend.len() == SAMPLES {
                trend.remove(0);
            }
            trend.push(rate as f32);
        }
        self.trends = trends;
    }

    /// Calls per second of a node, one value for each of the last samples for which they were
    /// recorded. Empty if none were.
    pub(super) fn trend(&self, node: NodeId) -> &[f32] {
        self.trends.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The top node of a node's branch: a function, a root or a thread.
    pub(super) fn top_of(&self, node: NodeId) -> NodeId {
        let up = |&node: &NodeId| self.shown().trie.parent(node);
        std::iter::successors(Some(node), up).last().unwrap_or(node)
    }

    /// The parent of a node in the displayed shape. `None` for a top node.
    pub(super) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.shown().trie.parent(node)
    }

    /// The sites of a node itself.
    pub(super) fn sites(&self, node: NodeId) -> &[SiteId] {
        self.shown().trie.sites(node)
    }

    /// The sites from the start of the branch to a node.
    pub(super) fn sites_to(&self, node: NodeId) -> Vec<SiteId> {
        path_to(&self.shown().trie, node)
    }

    /// The function of the calls at a node. `None` if there are several.
    pub(super) fn function_at(&self, node: NodeId) -> Option<SiteId> {
        let above = self.sites_to(node);
        let is_function = |&&site: &&SiteId| self.sites.get(site).is_function;
        if let Some(&function) = above.iter().find(is_function) {
            return Some(function);
        }
        // In the shape from the root, all functions below must be the same.
        let mut found = None;
        let mut stack = vec![node];
        while let Some(at) = stack.pop().filter(|_| self.shape == Shape::FromRoot) {
            if self.counted(at).paths == 0 {
                continue;
            }
            let sites = self.shown().trie.sites(at);
            match (sites.iter().find(is_function), found) {
                (Some(&site), None) => found = Some(site),
                (Some(&site), Some(other)) if site != other => return None,
                _ => {}
            }
            stack.extend(self.shown().trie.children(at));
        }
        found
    }

    /// The index of a function in the latest sample. `None` if the sample does not have it.
    pub(super) fn function_index(&self, site: SiteId) -> Option<usize> {
        self.sites.function_index(site)
    }

    /// The splits of displayed nodes since the last call.
    pub(super) fn take_splits(&mut self) -> Vec<Split> {
        let of_others = self.callers.trie.take_splits();
        match self.shape {
            Shape::Callers => of_others,
            _ => self.other.trie.take_splits(),
        }
    }
}

/// The sites from the start of a path to a node.
fn path_to(trie: &Trie, node: NodeId) -> Vec<SiteId> {
    let up = |&node: &NodeId| trie.parent(node);
    let nodes: Vec<NodeId> = std::iter::successors(Some(node), up).collect();
    let sites = nodes.iter().rev().flat_map(|&node| trie.sites(node));
    sites.copied().collect()
}
