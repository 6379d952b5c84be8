//! The starts and ends of loops in real code. `--nocapture` shows the figures.

mod libraries;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use patcher::Svma;
use patcher::flow::ModuleContext;
use patcher::image::Image;
use patcher::inside::{
    BlockId, EdgeKind, Graph, Inside, LoopId, NeverReturning, Node, Span, SpanStep, Transfer,
};
use patcher::plan::{Allowed, Effect, Effects, Hooked, ProbePoint, plan_inside};

/// The steps of the walk through each function.
const STEPS: usize = 400;

#[derive(Default, Debug)]
struct Figures {
    functions: usize,
    loops: usize,
    timed: usize,
    refused: BTreeMap<String, usize>,
    planned: usize,
    unplanned: BTreeMap<String, usize>,
    begun: usize,
    thrown: usize,
}

/// The loops that are open, by the hooks that have run.
struct Walk<'a> {
    hooks: BTreeMap<(Svma, Transfer), Vec<(SpanStep, usize)>>,
    open: Vec<usize>,
    begun: usize,
    inside: &'a Inside,
    /// The call sites whose exceptions arrive at a landing pad, with the pad.
    sites: Vec<(Range<Svma>, Svma)>,
    /// The blocks that control reaches without exceptions.
    usual: BTreeSet<u32>,
    thrown: usize,
}

impl Walk<'_> {
    fn run(&mut self, at: Svma, transfer: Transfer) {
        let Some(hooks) = self.hooks.get(&(at, transfer)) else {
            return;
        };
        for (step, of) in hooks {
            if step.begins {
                assert!(!self.open.contains(of), "loop {of} begins at {at} again");
                self.open.push(*of);
                self.begun += 1;
            } else if self.open.contains(of) {
                assert_eq!(self.open.pop(), Some(*of), "at {at}");
            }
        }
    }

    /// The landing pad at which an exception of a call in the block arrives.
    fn pad_of(&self, block: BlockId) -> Option<BlockId> {
        let graph = &self.inside.graph;
        let insns = &self.inside.flow.insns[graph.block(block).insns.clone()];
        let calls = insns.iter().filter(|insn| insn.is_call());
        let pads = calls.filter_map(|call| {
            let is_it = |(range, _): &&(Range<Svma>, Svma)| range.contains(&Svma(call.at()));
            self.sites.iter().find(is_it).map(|(_, pad)| *pad)
        });
        let starts = |pad: Svma| {
            let mut ids = graph.block_ids();
            ids.find(|&id| graph.block(id).range.start == pad)
        };
        pads.filter_map(starts).next()
    }

    /// Follows edges from the entry, and checks in each block that exactly the loops that contain
    /// it are open. Handlers of exceptions may be in loops or not.
    fn follow(&mut self, timed: &[bool]) {
        let graph = &self.inside.graph;
        let mut node = Node::Entry;
        let mut random = 1_u64;
        for _ in 0..STEPS {
            if let Node::Block(block) = node {
                let (first, last) = (graph.block(block).first, graph.block(block).last);
                self.run(first, Transfer::Reached);
                if first != last {
                    self.run(last, Transfer::Reached);
                }
            }
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pad = match node {
                Node::Block(block) if random >> 60 == 0 => self.pad_of(block),
                _ => None,
            };
            if let Some(pad) = pad {
                self.thrown += 1;
                node = Node::Block(pad);
                continue;
            }
            // Exceptions have no edges.
            let leaving = graph.leaving(node).iter();
            let leaving = leaving.filter(|&&id| graph.edge(id).kind != EdgeKind::Arrival);
            let leaving: Vec<_> = leaving.collect();
            let Some(&&edge) = leaving.get((random >> 33) as usize % leaving.len().max(1)) else {
                return;
            };
            let edge = graph.edge(edge);
            if let Node::Block(block) = node {
                let transfer = match (edge.kind, edge.to) {
                    (EdgeKind::Taken, _) => Transfer::Taken,
                    (EdgeKind::Table, Node::Block(to)) => {
                        Transfer::LeadsTo(graph.block(to).range.start)
                    }
                    _ => Transfer::NotTaken,
                };
                self.run(graph.block(block).last, transfer);
            }
            node = edge.to;
            let block = match node {
                Node::Block(block) => block,
                _ => {
                    assert!(self.open.is_empty(), "{:?} are open at the end", self.open);
                    node = Node::Entry;
                    continue;
                }
            };
            self.check(graph, block, timed);
        }
    }

    fn check(&mut self, graph: &Graph, block: BlockId, timed: &[bool]) {
        if !self.usual.contains(&block.0) {
            return;
        }
        // Hooks at the start of the block have not run yet.
        let first = graph.block(block).first;
        let open = self.open.clone();
        let begun = self.begun;
        self.run(first, Transfer::Reached);
        let is_in = |of: &usize| self.inside.loops.contains(LoopId(*of as u32), block);
        let mut expected: Vec<usize> = (0..timed.len()).filter(is_in).collect();
        expected.retain(|&of| timed[of]);
        let mut found = self.open.clone();
        found.sort_unstable();
        let last = graph.block(block).last;
        // A hook before the only instruction may belong to the way out.
        if first != last {
            assert_eq!(found, expected, "in the block at {first}");
        }
        (self.open, self.begun) = (open, begun);
    }
}

fn sites(image: &Image<'_>, inside: &Inside) -> Vec<(Range<Svma>, Svma)> {
    let starts = inside.flow.ranges.iter().map(|range| range.start);
    let fdes = starts.filter_map(|start| image.fde(start));
    fdes.flat_map(|fde| image.exception_sites(&fde)).collect()
}

fn usual(graph: &Graph) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut work = vec![Node::Entry];
    while let Some(node) = work.pop() {
        let leaving = graph.leaving(node).iter().map(|&id| graph.edge(id));
        for edge in leaving.filter(|edge| edge.kind != EdgeKind::Arrival) {
            let new = edge.to.block().filter(|block| found.insert(block.0));
            work.extend(new.map(Node::Block));
        }
    }
    found
}

impl Figures {
    fn of(data: &[u8]) -> Self {
        let image = Image::parse(data).expect("an image");
        let context = ModuleContext::new(&image);
        let mut calls = NeverReturning::default();
        let mut figures = Self::default();
        for function in image.functions().iter() {
            let inside = Inside::with_loops(&image, &context, &function, &mut calls);
            let Some(inside) = inside.filter(|inside| !inside.loops.loops().is_empty()) else {
                continue;
            };
            figures.functions += 1;
            let spans = Span::of_loops(&image, &context, &function, &inside);
            assert_eq!(spans.len(), inside.loops.loops().len());
            let mut hooks: BTreeMap<_, Vec<_>> = BTreeMap::new();
            let mut points = Vec::new();
            for (span, of) in spans.iter().zip(0..) {
                figures.loops += 1;
                let Ok(span) = span else {
                    let why = span.as_ref().expect_err("a reason").to_string();
                    let why = why.split(" 0x").next().unwrap_or_default().to_owned();
                    *figures.refused.entry(why).or_default() += 1;
                    continue;
                };
                figures.timed += 1;
                for &(at, step) in &span.hooks {
                    let of_place: &mut Vec<_> = hooks.entry((at, step.transfer)).or_default();
                    of_place.push((step, of));
                    points.push(ProbePoint {
                        at,
                        effect: Effect::Span(SpanStep {
                            number: of as u32,
                            ..step
                        }),
                    });
                }
            }
            for of_place in hooks.values_mut() {
                of_place.sort_unstable();
            }
            let timed: Vec<bool> = spans.iter().map(Result::is_ok).collect();
            let mut walk = Walk {
                hooks,
                open: Vec::new(),
                begun: 0,
                inside: &inside,
                sites: sites(&image, &inside),
                usual: usual(&inside.graph),
                thrown: 0,
            };
            walk.follow(&timed);
            figures.begun += walk.begun;
            figures.thrown += walk.thrown;
            if figures.functions % 7 == 0 && !points.is_empty() {
                let want = Effects {
                    entry: true,
                    exits: true,
                };
                let hooked = Hooked {
                    points: &points,
                    regions: &[],
                    arrivals: &[],
                };
                let plan = plan_inside(&image, &context, &function, (want, hooked), Allowed::ALL);
                for point in &plan.points {
                    match point.outcome {
                        Ok(_) => figures.planned += 1,
                        Err(why) => *figures.unplanned.entry(why.to_string()).or_default() += 1,
                    }
                }
            }
        }
        figures
    }
}

fn hold(name: &str, data: &[u8]) {
    let figures = Figures::of(data);
    println!("{name}: {figures:#?}");
    assert!(figures.begun > figures.functions, "{name}");
    assert!(figures.timed * 10 >= figures.loops * 8, "{name}");
}

#[test]
fn loops_of_the_c_library_begin_and_end() {
    hold("libc.so.6", &libraries::libc());
}

#[test]
fn loops_beside_exceptions_begin_and_end() {
    if let Some(data) = libraries::library("libstdc++.so.6") {
        hold("libstdc++.so.6", &data);
    }
}

#[test]
fn loops_of_programs_begin_and_end() {
    for path in ["/usr/bin/python3", "/usr/bin/git"] {
        if let Ok(data) = std::fs::read(path) {
            hold(path, &data);
        }
    }
}
