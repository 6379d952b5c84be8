//! Control-flow graphs of real code. `--nocapture` shows the figures.

mod libraries;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use capstone::Capstone;
use capstone::arch::BuildsCapstone;
use capstone::arch::x86::ArchMode;
use patcher::Svma;
use patcher::flow::{Flow, JumpTargets, ModuleContext};
use patcher::function::Function;
use patcher::image::Image;
use patcher::inside::{
    Action, BlockEnd, Chords, Count, Counting, Cut, Dominators, EdgeId, EdgeKind, Followed, Graph,
    Loops, NeverReturning, Node, Numbering, PathCounting, Pathless, Place, Start, Transfer, check,
    solve,
};
use patcher::isa::Insn;
use patcher::plan::{Allowed, Effect, Effects, Hooked, ProbePoint, plan_inside};

/// The number of paths for which counters fit a small array.
const FEW_PATHS: u64 = 4096;

#[derive(Default, Debug)]
struct Figures {
    /// Functions whose paths can be counted, and why others cannot.
    followed: usize,
    pathless: BTreeMap<&'static str, usize>,
    path_hooks: usize,
    functions: usize,
    accepted: usize,
    without_doubt: usize,
    accepted_without_doubt: usize,
    refused: BTreeMap<String, usize>,
    ends: BTreeMap<BlockEnd, usize>,
    edges: BTreeMap<EdgeKind, usize>,
    arrivals_with_predecessors: usize,
    uncertain_blocks: usize,
    chords: usize,
    places: BTreeMap<&'static str, usize>,
    functions_with_chord_without_place: usize,
    loops: usize,
    irreducible: usize,
    few_paths: usize,
    too_many_paths: usize,
    increments: usize,
    countable: usize,
    counters: usize,
    counters_by_transfer: BTreeMap<Transfer, usize>,
    planned: usize,
    refused_counters: BTreeMap<String, usize>,
}

/// A block's instructions: addresses, mnemonics and operands.
fn decoded(capstone: &Capstone, bytes: &[u8], at: u64) -> Vec<(u64, String, String)> {
    let insns = capstone.disasm_all(bytes, at).expect("instructions");
    let insns = insns.iter().map(|insn| {
        // Prefixes are a part of the mnemonic.
        let mnemonic = insn.mnemonic().unwrap_or_default();
        let mnemonic = mnemonic.split_whitespace().last().unwrap_or_default();
        let operands = insn.op_str().unwrap_or_default();
        (insn.address(), mnemonic.to_owned(), operands.to_owned())
    });
    insns.collect()
}

fn is_conditional(mnemonic: &str) -> bool {
    let jumps = mnemonic.starts_with('j') && mnemonic != "jmp";
    jumps || mnemonic.starts_with("loop") || mnemonic == "xbegin"
}

/// Checks the blocks and edges of `graph` against another decoder.
fn check_graph(image: &Image<'_>, flow: &Flow, graph: &Graph, capstone: &Capstone) {
    let mut covered = Vec::new();
    for block in graph.blocks() {
        covered.extend(block.insns.clone());
    }
    let live = (0..flow.insns.len()).filter(|&i| flow.is_live(flow.insns[i].at()));
    assert!(
        covered.is_sorted_by(|a, b| a < b),
        "no two blocks share an instruction"
    );
    let after_call = |index: &usize| {
        let before = index.checked_sub(1).map(|before| flow.insns[before].at());
        let before = before.and_then(|at| graph.block_at(Svma(at)));
        before.is_some_and(|before| graph.block(before).end == BlockEnd::NoReturn)
    };
    let dead = live.filter(|index| covered.binary_search(index).is_err());
    let dead: Vec<usize> = dead.collect();
    // Only code after calls that never return, and code to which only that leads, is in no block.
    assert!(dead.is_empty() || dead.iter().any(after_call));
    for &index in &dead {
        let at = flow.insns[index].at();
        let leads_here = |insn: &&Insn| insn.is_branch() && insn.target() == at;
        let branches = covered.iter().map(|&index| &flow.insns[index]);
        assert!(!flow.is_mark(at) && !branches.clone().any(|insn| leads_here(&insn)));
    }

    let mut reached = BTreeSet::new();
    let mut work = vec![Node::Entry];
    while let Some(node) = work.pop() {
        if reached.insert(node) {
            work.extend(graph.leaving(node).iter().map(|&edge| graph.edge(edge).to));
        }
    }
    for id in graph.block_ids() {
        assert!(reached.contains(&Node::Block(id)), "{id} is reached");
        let block = graph.block(id);
        assert_eq!(graph.block_at(block.last), Some(id));
        let len = block.range.end.0 - block.range.start.0;
        let bytes = image.bytes(block.range.start, len).expect("bytes");
        let insns = decoded(capstone, bytes, block.range.start.0);
        let own = flow.insns[block.insns.clone()].iter().map(|insn| insn.at());
        // Capstone ends at instructions that it does not know.
        let known = insns.len().min(block.insns.len());
        assert!(own.take(known).eq(insns.iter().map(|i| i.0)), "{id}");
        if known < block.insns.len() {
            continue;
        }
        let Some(((_, mnemonic, operands), inner)) = insns.split_last() else {
            continue;
        };
        for (_, mnemonic, _) in inner {
            let ends = mnemonic == "jmp" || mnemonic.starts_with("ret");
            assert!(!ends && !is_conditional(mnemonic), "{id}: {mnemonic}");
        }
        let target = operands.strip_prefix("0x");
        let target = target.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let mut expected = BTreeSet::new();
        let node_at = |at: u64| match graph.block_at(Svma(at)) {
            Some(block) if graph.block(block).range.start.0 == at => Node::Block(block),
            // The byte after a lock prefix.
            Some(block) if graph.block(block).last.0 + 1 == at => {
                let end = graph.block(block).range.end;
                Node::Block(graph.block_at(end).expect("the next block"))
            }
            Some(block) => panic!("a branch into the middle of {block}"),
            None => Node::Exit,
        };
        if mnemonic == "jmp" || is_conditional(mnemonic) {
            expected.extend(target.map(node_at));
        }
        if mnemonic != "jmp" && block.end != BlockEnd::NoReturn {
            let stops = ["ud2", "ud1", "ud0", "hlt"].contains(&mnemonic.as_str());
            if stops || mnemonic.starts_with("ret") {
                expected.insert(Node::Exit);
            } else {
                expected.insert(node_at(block.range.end.0));
            }
        }
        let leaving = graph.leaving(Node::Block(id)).iter();
        let found: BTreeSet<Node> = leaving.map(|&edge| graph.edge(edge).to).collect();
        match block.end {
            BlockEnd::Switch => {
                assert!(mnemonic == "jmp" && target.is_none());
                let starts = found.iter().map(|to| match to {
                    Node::Block(to) => graph.block(*to).range.start.0,
                    _ => panic!("a table leads out of the function"),
                });
                assert!(starts.into_iter().all(|at| flow.is_mark(at)));
            }
            BlockEnd::PointerJump | BlockEnd::TailCall if target.is_none() => {
                assert_eq!(found, BTreeSet::from([Node::Exit]));
            }
            BlockEnd::NoReturn => assert!(["call", "syscall"].contains(&mnemonic.as_str())),
            _ => assert_eq!(found, expected, "{id} at {}: {mnemonic}", block.range.start),
        }
    }
}

/// The edges of a walk of about `steps` steps that ends at the virtual exit, if it finds it.
fn walk(graph: &Graph, steps: usize) -> Option<Vec<EdgeId>> {
    let mut taken = Vec::new();
    let mut node = Node::Entry;
    let mut random = 1_u64;
    for step in 0..2 * steps {
        if node == Node::Exit {
            if step > steps {
                return Some(taken);
            }
            node = Node::Entry;
        }
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let leaving = graph.leaving(node);
        let edge = leaving[(random >> 33) as usize % leaving.len()];
        taken.push(edge);
        node = graph.edge(edge).to;
    }
    (node == Node::Exit).then_some(taken)
}

/// Checks that the counts of a walk follow from those of the chords.
fn check_counts(graph: &Graph, chords: &Chords, taken: &[EdgeId]) {
    let mut edges = vec![0; graph.edges().len()];
    for edge in taken {
        edges[edge.index()] += 1;
    }
    assert_eq!(check(graph, &edges), Ok(()));
    let counts: Vec<u64> = chords.edges().iter().map(|e| edges[e.index()]).collect();
    let solved = chords.solve(graph, &counts).expect("no contradiction");
    assert_eq!(solved.edges, edges);
}

/// Checks that the counts of an activation follow from its counters. It begins at its call, or
/// after a call for which it has waited since before the counting began.
fn check_counters(counting: &Counting, taken: &[EdgeId]) {
    let graph = &counting.segments;
    let ends = graph.ends();
    let begins = |edge: &EdgeId| {
        let from = graph.edge(*edge).from;
        let leaving = graph.leaving(from).iter();
        let is_left = |id: &EdgeId| graph.edge(*id).kind == EdgeKind::Left;
        leaving.copied().find(is_left)
    };
    let late = taken.iter().position(|edge| begins(edge).is_some());
    for (from, waited) in [
        (0, None),
        (late.unwrap_or(0), late.and_then(|at| begins(&taken[at]))),
    ] {
        let mut edges = vec![0_i128; graph.edges().len()];
        for edge in &taken[from..] {
            edges[edge.index()] += 1;
        }
        let counters = counting.counters.iter();
        let counts: Vec<(usize, u64)> = counters
            .map(|count| (count.edge.index(), edges[count.edge.index()] as u64))
            .collect();
        if let Some(waited) = waited {
            edges[waited.index()] -= 1;
        }
        let solved = solve(graph.blocks().len() + 2, &ends, &counts).expect("no cycle");
        assert_eq!(solved, edges);
    }
}

/// Checks that the numbers on a walk stand for its paths.
fn check_paths(numbering: &Numbering, taken: &[EdgeId]) {
    let mut sum = 0_u64;
    let mut path = Vec::new();
    let ends = |number: u64, path: &mut Vec<EdgeId>| {
        let found = numbering.decode(number).expect("a path");
        if let Start::Entry(edge) = found.start {
            assert_eq!(path.remove(0), edge);
        }
        assert_eq!(found.edges, *path);
        path.clear();
    };
    for &edge in taken {
        match numbering.action(edge) {
            Action::Start(start) => {
                sum = start;
                path = vec![edge];
            }
            Action::Add(by) => {
                sum = sum.wrapping_add(by);
                path.push(edge);
            }
            Action::End(end) => ends(sum.wrapping_add(end), &mut path),
            Action::Restart { end, start } => {
                ends(sum.wrapping_add(end), &mut path);
                sum = start;
            }
        }
    }
}

impl Figures {
    fn of(data: &[u8]) -> Self {
        let image = Image::parse(data).expect("an ELF image");
        let context = ModuleContext::new(&image);
        let mode = Capstone::new().x86().mode(ArchMode::Mode64);
        let capstone = mode.build().expect("capstone");
        let mut figures = Self::default();
        let mut calls = NeverReturning::default();
        for function in image.functions().iter() {
            let Some(flow) = Flow::of(&image, &context, &function) else {
                continue;
            };
            figures.functions += 1;
            figures.without_doubt += usize::from(flow.doubt.is_none());
            match Graph::of(&image, &context, &flow, &mut calls) {
                Ok(graph) => {
                    figures.accepted += 1;
                    figures.accepted_without_doubt += usize::from(flow.doubt.is_none());
                    check_graph(&image, &flow, &graph, &capstone);
                    figures.add(&graph);
                    figures.add_counting(&flow, &graph);
                    let code = (&flow, &graph);
                    let followed = Followed::of(&image, &context, &function, code);
                    figures.add_paths(followed.and_then(|followed| followed.paths(None)));
                    if figures.accepted.is_multiple_of(7) {
                        figures.plan(&image, &context, &function, &flow, &graph);
                    }
                }
                Err(reason) => {
                    if std::env::var_os("SHOW_REFUSED").is_some() {
                        println!("{} {}: {reason}", function.range.start, function.linkage);
                        let targets = flow.jump_targets(&image, &context);
                        let unknown = targets.iter().filter(|t| *t.1 == JumpTargets::Shared);
                        unknown.for_each(|(at, _)| println!("  jump at {at:#x}"));
                    }
                    *figures.refused.entry(reason.to_string()).or_default() += 1;
                }
            }
        }
        figures
    }

    fn add_paths(&mut self, paths: Result<PathCounting, Pathless>) {
        let reason = match paths {
            Ok(counting) => {
                self.path_hooks += counting.hooks.len();
                self.followed += 1;
                return;
            }
            Err(Pathless::TooMany) => "too many",
            Err(Pathless::NoPlace(_)) => "no place",
            Err(Pathless::UnknownFrame(_)) => "unknown frame",
            Err(Pathless::ReturnsTwice(_)) => "returns twice",
            Err(Pathless::StackMoves) => "stack moves",
        };
        *self.pathless.entry(reason).or_default() += 1;
    }

    fn add_counting(&mut self, flow: &Flow, graph: &Graph) {
        let Ok(counting) = Counting::of(flow, graph, None) else {
            return;
        };
        self.countable += 1;
        self.counters += counting.counters.len();
        for Count { counter, .. } in &counting.counters {
            *self
                .counters_by_transfer
                .entry(counter.transfer)
                .or_default() += 1;
        }
        if let Some(taken) = walk(&counting.segments, 300) {
            check_counters(&counting, &taken);
        }
    }

    fn plan(
        &mut self,
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        function: &Function,
        flow: &Flow,
        graph: &Graph,
    ) {
        let Ok(counting) = Counting::of(flow, graph, None) else {
            return;
        };
        let nothing = Effects {
            entry: false,
            exits: false,
        };
        let points = counting.counters.iter().map(|count| ProbePoint {
            at: count.at,
            effect: Effect::Count(count.counter),
        });
        let points: Vec<ProbePoint> = points.collect();
        let hooks = Hooked {
            points: &points,
            regions: &[],
            arrivals: &[],
        };
        let plan = plan_inside(image, context, function, (nothing, hooks), Allowed::ALL);
        self.planned += 1;
        let refused = plan.points.iter().find_map(|point| point.outcome.err());
        if let Some(reason) = refused {
            *self.refused_counters.entry(reason.to_string()).or_default() += 1;
        }
    }

    fn add(&mut self, graph: &Graph) {
        for block in graph.blocks() {
            *self.ends.entry(block.end).or_default() += 1;
            self.uncertain_blocks += usize::from(!block.is_certain);
        }
        for edge in graph.edges() {
            *self.edges.entry(edge.kind).or_default() += 1;
            let has_others = graph.arriving(edge.to).len() > 1;
            let is_arrival = edge.kind == EdgeKind::Arrival;
            self.arrivals_with_predecessors += usize::from(is_arrival && has_others);
        }
        let dominators = Dominators::of(graph);
        let loops = Loops::of(graph);
        self.loops += loops.loops().len();
        for found in loops.loops() {
            let header = Node::Block(found.header);
            self.irreducible += usize::from(!found.is_reducible);
            for &edge in &found.back_edges {
                let is_back = dominators.dominates(header, graph.edge(edge).from);
                assert!(is_back || !found.is_reducible);
            }
        }
        let chords = Chords::of(graph, &loops, None);
        self.chords += chords.edges().len();
        let mut without = 0;
        for &chord in chords.edges() {
            let place = match Place::of(graph, chord) {
                Some(Place::Start(..)) => "start",
                Some(Place::End(..)) => "end",
                Some(Place::Branch(..)) => "branch",
                None => {
                    without += 1;
                    "none"
                }
            };
            *self.places.entry(place).or_default() += 1;
        }
        self.functions_with_chord_without_place += usize::from(without > 0);
        let taken = walk(graph, 300);
        if let Some(taken) = &taken {
            check_counts(graph, &chords, taken);
        }
        match Numbering::of(graph, &loops, &Cut::back(graph, &loops), None) {
            Ok(numbering) => {
                self.few_paths += usize::from(numbering.paths() <= FEW_PATHS);
                let is_increment = |action: &&Action| matches!(action, Action::Add(by) if *by > 0);
                self.increments += numbering.actions().iter().filter(is_increment).count();
                check_paths(&numbering, taken.as_deref().unwrap_or_default());
            }
            Err(_) => self.too_many_paths += 1,
        }
    }
}

fn holds(name: &str, data: &[u8]) {
    let started = Instant::now();
    let figures = Figures::of(data);
    println!("{name}: {figures:#?}\nin {:?}", started.elapsed());
    assert!(figures.accepted * 10 >= figures.functions * 9, "{name}");
    assert_eq!(
        figures.accepted_without_doubt, figures.without_doubt,
        "{name}"
    );
}

#[test]
fn functions_of_the_c_library_have_graphs() {
    holds("libc.so.6", &libraries::libc());
}

#[test]
fn functions_of_programs_have_graphs() {
    for path in ["/usr/bin/python3", "/usr/bin/git"] {
        if let Ok(data) = std::fs::read(path) {
            holds(path, &data);
        }
    }
}
