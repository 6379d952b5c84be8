//! A made-up program: its calls, their numbers, and the cost of each call path by itself.

use std::collections::{BTreeMap, BTreeSet};

use patcher::Avma;

use super::super::{
    Bounds, Cost, Dropped, Measured, MeasuredPath, Next, Row, Search, Site, Stack, Window, rows,
};

struct Node {
    function: u64,
    parent: Option<usize>,
    calls: u64,
    own: Cost,
}

/// Node 0 is a function that was called before the search began.
pub(super) struct World {
    nodes: Vec<Node>,
    /// Nodes that wait for work.
    idle: BTreeSet<usize>,
    pub(super) refused: BTreeSet<Avma>,
}

/// The result of a search.
pub(super) struct Outcome {
    pub(super) rows: Vec<Row>,
    pub(super) search: Search,
    pub(super) explained: Cost,
    pub(super) measured: BTreeSet<Avma>,
    pub(super) added: Vec<Avma>,
    pub(super) most_measured: usize,
    pub(super) is_over: bool,
    pub(super) looked_on: usize,
}

/// The overhead of a call of a measured function, in ns.
const CALL: f64 = 30.0;
/// The length of a step, in ns.
const STEP: u64 = 1_000_000_000;

impl World {
    pub(super) fn new(main: u64) -> Self {
        Self {
            nodes: vec![Node {
                function: main,
                parent: None,
                calls: 0,
                own: Cost::default(),
            }],
            idle: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Each entry of `shape` has a node's parent among the earlier nodes, its function, and its CPU
    /// time in ms.
    pub(super) fn random(main: u64, shape: &[(u16, u64, f64)]) -> Self {
        let mut world = Self::new(main);
        for &(parent, function, ms) in shape {
            let parent = usize::from(parent) % world.nodes.len();
            let own = Cost {
                cpu: ms * 1e6,
                off: 0.0,
            };
            world.call(parent, function, 100, own);
        }
        world
    }

    pub(super) fn call(&mut self, parent: usize, function: u64, calls: u64, own: Cost) -> usize {
        self.nodes.push(Node {
            function,
            parent: Some(parent),
            calls,
            own,
        });
        self.nodes.len() - 1
    }

    pub(super) fn own(&mut self, node: usize, own: Cost) {
        self.nodes[node].own = own;
    }

    pub(super) fn set_calls(&mut self, calls: &[u64]) {
        for (node, calls) in self.nodes.iter_mut().skip(1).zip(calls) {
            node.calls = *calls;
        }
    }

    /// Makes a node wait for work.
    pub(super) fn set_idle(&mut self, node: usize) {
        self.idle.insert(node);
    }

    fn idle(&self, node: usize) -> f64 {
        if self.idle.contains(&node) {
            self.nodes[node].own.sum()
        } else {
            0.0
        }
    }

    pub(super) fn all(&self) -> Cost {
        self.nodes.iter().map(|node| node.own).sum()
    }

    fn outwards(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |&node| self.nodes[node].parent)
    }

    /// The functions of a node and its callers.
    pub(super) fn path(&self, node: usize) -> Vec<u64> {
        self.outwards(node)
            .map(|n| self.nodes[n].function)
            .collect()
    }

    /// A number of random samples.
    pub(super) fn sampled(&self, seed: u64, samples: u32) -> Vec<Stack> {
        let mut state = seed | 1;
        let mut chance = || {
            // Xorshift (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut found: BTreeMap<usize, Cost> = BTreeMap::new();
        for part in [
            |c: Cost| Cost { off: 0.0, ..c },
            |c: Cost| Cost { cpu: 0.0, ..c },
        ] {
            let all = part(self.all());
            let each = all * (1.0 / f64::from(samples));
            for _ in 0..samples {
                let mut left = chance() * all.sum();
                let is_it = |node: &Node| {
                    left -= part(node.own).sum();
                    left < 0.0
                };
                if let Some(node) = self.nodes.iter().position(is_it) {
                    *found.entry(node).or_default() += each;
                }
            }
        }
        let stack = |(node, cost)| Stack {
            functions: self.path(node).into_iter().map(Avma).collect(),
            charged: 0,
            cost,
        };
        found.into_iter().map(stack).collect()
    }

    /// The window that results from measuring these functions for `ns`.
    pub(super) fn window(&self, functions: &BTreeSet<Avma>, ns: u64) -> Window {
        let is_measured = |n: usize| functions.contains(&Avma(self.nodes[n].function));
        let mut costs: BTreeMap<usize, Cost> = BTreeMap::new();
        for (n, node) in self.nodes.iter().enumerate() {
            // A call that does not return is not timed.
            if let Some(owner) = self.outwards(n).find(|&n| is_measured(n))
                && owner != 0
            {
                *costs.entry(owner).or_default() += node.own;
            }
        }
        let mut measured: BTreeMap<Avma, Vec<MeasuredPath>> = BTreeMap::new();
        for function in functions {
            measured.insert(*function, Vec::new());
        }
        let mut calls = 0;
        for n in (1..self.nodes.len()).filter(|&n| is_measured(n)) {
            let site = |n: usize| Site {
                function: Avma(self.nodes[n].function),
                at: Avma(self.nodes[n].function * 100),
            };
            let path = MeasuredPath {
                callers: self.outwards(n).skip(1).map(site).collect(),
                calls: self.nodes[n].calls,
                cost: costs.get(&n).copied().unwrap_or_default(),
                idle: self.idle(n),
            };
            calls += path.calls;
            let function = Avma(self.nodes[n].function);
            measured.entry(function).or_default().push(path);
        }
        let whole = self.all();
        Window {
            ns,
            whole,
            overhead: calls as f64 * CALL / whole.cpu.max(ns as f64 / 20.0),
            processor: calls as f64 * CALL / ns as f64,
            measured: measured
                .into_iter()
                .map(|(function, paths)| Measured { function, paths })
                .collect(),
        }
    }

    pub(super) fn search(&self, bounds: Bounds, seed: u64) -> Outcome {
        self.drive(Search::new(bounds), bounds, seed)
    }

    pub(super) fn search_within<const N: usize>(
        &self,
        bounds: Bounds,
        functions: [u64; N],
        seed: u64,
    ) -> Outcome {
        let search = Search::within(bounds, functions.map(Avma));
        self.drive(search, bounds, seed)
    }

    fn drive(&self, mut search: Search, bounds: Bounds, seed: u64) -> Outcome {
        const STEPS: usize = 500;
        let sampled = self.sampled(seed, 1000);
        let mut found = Outcome {
            rows: Vec::new(),
            explained: Cost::default(),
            measured: BTreeSet::new(),
            added: Vec::new(),
            most_measured: 0,
            is_over: false,
            looked_on: 0,
            search: search.clone(),
        };
        let mut add = search.begin(&sampled).add;
        let mut ns = STEP;
        for _ in 0..STEPS {
            for (function, _) in add {
                found.added.push(function);
                if self.refused.contains(&function) {
                    search.refuse(function, Dropped::Refused("no room".to_owned()));
                }
            }
            found.measured.extend(search.measured());
            found.most_measured = found.most_measured.max(search.measured().len());
            let window = self.window(search.measured(), ns);
            found.is_over = bounds.is_too_much(&window, 1.0);
            let step = search.next(&sampled, &window);
            ns = match step.next {
                Next::LookOn => ns + STEP,
                _ => STEP,
            };
            found.looked_on += usize::from(step.next == Next::LookOn);
            add = step.add;
            if step.next == Next::End {
                found.rows = rows(&search, &window);
                found.explained = step.explained;
                found.search = search;
                assert!(found.most_measured <= bounds.most.max(1));
                return found;
            }
        }
        panic!("no end after {STEPS} steps: {search:#?}");
    }
}
