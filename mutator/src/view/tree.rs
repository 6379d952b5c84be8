//! The callers tree: under each function the call sites that reach it, merged from the function
//! outwards.
//!
//! Nodes are never forgotten and keep their identity from sample to sample, so that what the user
//! has opened or selected stays so.

use crate::profile::{Distribution, Frame, Label, Module, PathEntry, PerCycle, Profile, printable};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

/// One node, for as long as the view lives.
pub(super) type NodeId = usize;

/// What a node stands for. Modules are numbered over all samples.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Site {
    Function {
        module: u32,
        address: u64,
        /// True of an instruction, which may be a function's first one.
        is_point: bool,
    },
    /// One thread's calls of a function, where threads are kept apart.
    Thread(u32),
    /// Level 0 is the innermost function inlined at the call; the last is the function itself.
    Caller {
        module: u32,
        address: u64,
        level: usize,
    },
    Unknown,
}

/// What is measured at one node, the callers beyond it included.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    pub(super) calls: u64,
    /// Of the metric that is shown.
    pub(super) values: Distribution,
    /// The share of their sum of outermost activations.
    pub(super) outermost: i128,
    /// The calls whose paths come to no root.
    pub(super) incomplete: u64,
    /// Their instructions and cycles.
    pub(super) per_cycle: PerCycle,
}

pub(super) struct Node {
    pub(super) label: Rc<Label>,
    pub(super) parent: Option<NodeId>,
    /// True if the current sample still has it.
    live: bool,
    expanded: bool,
    children: Vec<NodeId>,
    pub(super) now: Numbers,
    /// Calls a second between the last two samples; none with only one.
    pub(super) rate: Option<f64>,
    calls_before: u64,
}

/// The columns by which rows are sorted, in the order of the key that cycles them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Total,
    Calls,
    Rate,
    Mean,
    P99,
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Total => Self::Calls,
            Self::Calls => Self::Rate,
            Self::Rate => Self::Mean,
            Self::Mean => Self::P99,
            Self::P99 => Self::Name,
            Self::Name => Self::Total,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Calls => "calls",
            Self::Rate => "calls/s",
            Self::Mean => "mean",
            Self::P99 => "p99",
            Self::Name => "name",
        }
    }
}

/// One visible line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) node: NodeId,
    pub(super) indent: usize,
    pub(super) marker: Marker,
}

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// Callers that are not shown.
    Closed,
    /// Callers that are shown, indented.
    Open,
    /// One caller, shown in the next line; or none.
    None,
}

#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    by_site: HashMap<(Option<NodeId>, Site), NodeId>,
    modules: HashMap<(String, Option<u64>), u32>,
    /// Demangled once for each call site, however many paths it is on.
    labels: HashMap<Site, Rc<Label>>,
    functions: Vec<NodeId>,
}

impl Tree {
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// Takes the numbers of a new sample; `span` is the time since the last one, in ns.
    pub(super) fn sample(&mut self, profile: &Profile, metric: &str, span: Option<u64>) {
        for node in &mut self.nodes {
            node.calls_before = node.now.calls;
        }
        self.measure(profile, metric);
        for node in &mut self.nodes {
            let new = node.now.calls.saturating_sub(node.calls_before);
            node.rate = span
                .filter(|&ns| ns > 0)
                .map(|ns| new as f64 * 1e9 / ns as f64);
        }
        for i in 0..self.functions.len() {
            let function = self.functions[i];
            // Once, when there first is something to see: later it is the user's choice.
            if self.nodes[function].now.calls > 0 && self.nodes[function].calls_before == 0 {
                self.open_hottest(function);
            }
        }
    }

    /// Takes the numbers of another metric of the sample that is shown.
    pub(super) fn measure(&mut self, profile: &Profile, metric: &str) {
        for node in &mut self.nodes {
            node.live = false;
            node.now.clear();
        }
        let modules: Vec<u32> = profile.modules.iter().map(|m| self.module(m)).collect();
        self.functions = (0..profile.functions.len())
            .map(|i| self.function(profile, i, modules[profile.functions[i].module]))
            .collect();
        let threads = profile.thread_names();
        for path in &profile.paths {
            let numbers = numbers(path, metric);
            let mut at = self.functions[path.function];
            self.nodes[at].now.add(&numbers);
            if let Some(tid) = path.thread {
                at = self.thread(at, tid, threads.get(&tid).copied());
                self.nodes[at].now.add(&numbers);
            }
            for &frame in &path.stack {
                let frame = &profile.frames[frame];
                let module = frame.module.map_or(u32::MAX, |m| modules[m]);
                for level in 0..=frame.inlined.len() {
                    let site = Site::Caller {
                        module,
                        address: frame.address,
                        level,
                    };
                    at = self.child(Some(at), site, || label(profile, frame, level));
                    self.nodes[at].now.add(&numbers);
                }
            }
            if !path.complete {
                let name = "[callers unknown]".to_owned();
                let label = || Label {
                    name,
                    place: String::new(),
                    inlined: false,
                };
                at = self.child(Some(at), Site::Unknown, label);
                self.nodes[at].now.add(&numbers);
            }
        }
    }

    fn module(&mut self, module: &Module) -> u32 {
        let new = self.modules.len() as u32;
        let key = (module.path.clone(), module.base);
        *self.modules.entry(key).or_insert(new)
    }

    fn function(&mut self, profile: &Profile, index: usize, module: u32) -> NodeId {
        let function = &profile.functions[index];
        let site = Site::Function {
            module,
            address: function.address,
            is_point: function.point,
        };
        self.child(None, site, || Label {
            name: printable(&function.name).into_owned(),
            place: profile.module_name(Some(function.module)).into_owned(),
            inlined: false,
        })
    }

    /// What one thread has called of `function`. A thread can change its name.
    fn thread(&mut self, function: NodeId, tid: u32, name: Option<&str>) -> NodeId {
        let by_number = format!("thread {tid}");
        let (name, place) = match name {
            Some(name) => (printable(name).into_owned(), by_number),
            None => (by_number, String::new()),
        };
        let label = Label {
            name,
            place,
            inlined: false,
        };
        let id = self.child(Some(function), Site::Thread(tid), || label.clone());
        if *self.nodes[id].label != label {
            self.nodes[id].label = Rc::new(label);
        }
        id
    }

    fn child(
        &mut self,
        parent: Option<NodeId>,
        site: Site,
        label: impl FnOnce() -> Label,
    ) -> NodeId {
        let new = self.nodes.len();
        let id = *self.by_site.entry((parent, site)).or_insert(new);
        if id == new {
            let label = self.labels.entry(site).or_insert_with(|| Rc::new(label()));
            self.nodes.push(Node {
                label: Rc::clone(label),
                parent,
                live: true,
                expanded: false,
                children: Vec::new(),
                now: Numbers::default(),
                rate: None,
                calls_before: 0,
            });
            if let Some(parent) = parent {
                self.nodes[parent].children.push(new);
            }
        }
        self.nodes[id].live = true;
        id
    }

    /// The index of the node's function in `profile`.
    pub(super) fn function_index(&self, node: NodeId, profile: &Profile) -> Option<usize> {
        let root = self.function_of(node);
        profile.functions.iter().position(|f| {
            let module = &profile.modules[f.module];
            let module = self.modules.get(&(module.path.clone(), module.base));
            let site = module.map(|&module| Site::Function {
                module,
                address: f.address,
                is_point: f.point,
            });
            site.and_then(|site| self.by_site.get(&(None, site))) == Some(&root)
        })
    }

    /// The function that the node is or calls.
    pub(super) fn function_of(&self, mut node: NodeId) -> NodeId {
        while let Some(parent) = self.nodes[node].parent {
            node = parent;
        }
        node
    }

    pub(super) fn is_expanded(&self, node: NodeId) -> bool {
        self.nodes[node].expanded && self.live_children(node).next().is_some()
    }

    pub(super) fn collapse(&mut self, node: NodeId) {
        self.nodes[node].expanded = false;
    }

    /// Shows the callers of `node`, and theirs as long as there is only one.
    pub(super) fn expand(&mut self, mut node: NodeId) {
        loop {
            self.nodes[node].expanded = true;
            let mut children = self.live_children(node);
            match (children.next(), children.next()) {
                (Some(only), None) => node = only,
                _ => return,
            }
        }
    }

    fn open_hottest(&mut self, mut node: NodeId) {
        loop {
            self.nodes[node].expanded = true;
            let hottest = self.live_children(node).max_by(|&a, &b| {
                let now = |id: NodeId| &self.nodes[id].now;
                let cost = |id: NodeId| (now(id).values.sum(), now(id).calls);
                cost(a).cmp(&cost(b))
            });
            match hottest {
                Some(child) => node = child,
                None => return,
            }
        }
    }

    fn live_children(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.nodes[node]
            .children
            .iter()
            .copied()
            .filter(|&child| self.nodes[child].live)
    }

    /// The visible lines, sorted.
    pub(super) fn rows(&self, sort: Sort) -> Vec<Row> {
        let mut rows = Vec::new();
        // Deepest last on the stack, so no recursion over a call path of any length is needed.
        let mut stack: Vec<(NodeId, usize)> = Vec::new();
        let mut functions = self.functions.clone();
        functions.sort_by(|&a, &b| self.compare(a, b, sort));
        stack.extend(functions.into_iter().rev().map(|id| (id, 0)));
        while let Some((node, indent)) = stack.pop() {
            let mut children: Vec<_> = self.live_children(node).collect();
            let expanded = self.nodes[node].expanded;
            let branches = self.nodes[node].parent.is_none() || children.len() > 1;
            let marker = match (children.is_empty(), expanded, branches) {
                (true, ..) | (false, true, false) => Marker::None,
                (false, true, true) => Marker::Open,
                (false, false, _) => Marker::Closed,
            };
            rows.push(Row {
                node,
                indent,
                marker,
            });
            if expanded {
                children.sort_by(|&a, &b| self.compare(a, b, sort));
                // A chain of single callers stays in its column: paths are long, screens are not.
                let below = indent + usize::from(branches);
                stack.extend(children.into_iter().rev().map(|child| (child, below)));
            }
        }
        rows
    }

    fn compare(&self, a: NodeId, b: NodeId, sort: Sort) -> Ordering {
        let (x, y) = (&self.nodes[a], &self.nodes[b]);
        let mean = |n: &Node| n.now.values.mean().unwrap_or(0.0);
        let p99 = |n: &Node| n.now.values.quantile(990);
        let by_name = || {
            x.label
                .name
                .cmp(&y.label.name)
                .then(x.label.place.cmp(&y.label.place))
        };
        let order = match sort {
            Sort::Total => {
                let sums = y.now.values.sum().cmp(&x.now.values.sum());
                sums.then(y.now.calls.cmp(&x.now.calls))
            }
            Sort::Calls => y.now.calls.cmp(&x.now.calls),
            Sort::Rate => y.rate.unwrap_or(0.0).total_cmp(&x.rate.unwrap_or(0.0)),
            Sort::Mean => mean(y).total_cmp(&mean(x)),
            Sort::P99 => p99(y).cmp(&p99(x)),
            Sort::Name => Ordering::Equal,
        };
        // Equal rows must not change places from sample to sample.
        order.then_with(by_name).then(a.cmp(&b))
    }

    /// The calls of all functions.
    pub(super) fn all_calls(&self) -> u64 {
        let calls = self.functions.iter().map(|&f| self.nodes[f].now.calls);
        calls.fold(0, u64::saturating_add)
    }
}

impl Numbers {
    fn clear(&mut self) {
        self.values.clear();
        (self.calls, self.outermost, self.incomplete) = (0, 0, 0);
        self.per_cycle = PerCycle::default();
    }

    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.values.merge(&other.values);
        self.outermost = self.outermost.saturating_add(other.outermost);
        self.incomplete = self.incomplete.saturating_add(other.incomplete);
        self.per_cycle.add(&other.per_cycle);
    }
}

fn numbers(path: &PathEntry, metric: &str) -> Numbers {
    let stats = path.metrics.timers.get(metric);
    let outermost = stats.map_or(0, |stats| stats.outermost.unwrap_or(stats.sum));
    Numbers {
        calls: path.metrics.count,
        values: stats.map(Distribution::of).unwrap_or_default(),
        outermost,
        incomplete: path.incomplete(),
        per_cycle: PerCycle::of(&path.metrics.timers),
    }
}

fn label(profile: &Profile, frame: &Frame, level: usize) -> Label {
    // There is one label a level; the fallback is for the type alone.
    let unknown = || Label {
        name: "?".to_owned(),
        place: String::new(),
        inlined: false,
    };
    profile
        .labels(frame)
        .into_iter()
        .nth(level)
        .unwrap_or_else(unknown)
}
