//! Random graphs and walks as the oracle for everything that is derived from a graph.

use std::collections::HashSet;

use proptest::prelude::*;

use super::random::{any_graph, graph, reducible_graph, walk};
use super::*;

/// The nodes that a path from `start` reaches without the node `avoided`.
fn reached(graph: &Graph, start: Node, avoided: Option<Node>) -> HashSet<Node> {
    let mut found = HashSet::new();
    let mut work = vec![start];
    while let Some(node) = work.pop() {
        if Some(node) != avoided && found.insert(node) {
            work.extend(graph.leaving(node).iter().map(|&edge| graph.edge(edge).to));
        }
    }
    found
}

/// The blocks of the loop with this header in a reducible graph: those that the header dominates
/// and that are in the same strongly connected region. `None` if it heads no loop.
fn region(graph: &Graph, dominators: &Dominators, header: BlockId) -> Option<Vec<BlockId>> {
    let header = Node::Block(header);
    let inside = |node: Node| dominators.dominates(header, node);
    let mut leading: HashSet<Node> = HashSet::new();
    let back = graph.arriving(header).iter().map(|&e| graph.edge(e).from);
    let mut work: Vec<Node> = back.filter(|&node| inside(node)).collect();
    if work.is_empty() {
        return None;
    }
    while let Some(node) = work.pop() {
        if leading.insert(node) && node != header {
            let before = graph.arriving(node).iter().map(|&e| graph.edge(e).from);
            work.extend(before.filter(|&node| inside(node)));
        }
    }
    leading.insert(header);
    let mut blocks: Vec<BlockId> = leading.into_iter().filter_map(Node::block).collect();
    blocks.sort_unstable();
    Some(blocks)
}

/// True if the graph is reducible: without the edges to a dominator, it has no cycle.
fn is_reducible(graph: &Graph, dominators: &Dominators) -> bool {
    let is_back = |edge: EdgeId| {
        let edge = graph.edge(edge);
        dominators.dominates(edge.to, edge.from)
    };
    has_no_cycle(graph, is_back)
}

/// True if the graph has no cycle without the edges that are `cut`.
fn has_no_cycle(graph: &Graph, cut: impl Fn(EdgeId) -> bool) -> bool {
    let mut waiting: Vec<usize> = Vec::new();
    let mut work = vec![Node::Entry];
    for block in graph.block_ids() {
        let arriving = graph.arriving(Node::Block(block)).iter();
        waiting.push(arriving.filter(|&&edge| !cut(edge)).count());
    }
    let is_first = |block: &BlockId| waiting[block.index()] == 0;
    work.extend(graph.block_ids().filter(is_first).map(Node::Block));
    let mut left = graph.blocks().len() + 1;
    while let Some(node) = work.pop() {
        left -= 1;
        for &edge in graph.leaving(node).iter().filter(|&&edge| !cut(edge)) {
            if let Node::Block(to) = graph.edge(edge).to {
                waiting[to.index()] -= 1;
                if waiting[to.index()] == 0 {
                    work.push(Node::Block(to));
                }
            }
        }
    }
    left == 0
}

fn check_dominators(graph: &Graph) -> Result<(), TestCaseError> {
    let dominators = Dominators::of(graph);
    let all = reached(graph, Node::Entry, None);
    for &avoided in &all {
        let without = reached(graph, Node::Entry, Some(avoided));
        for &node in &all {
            prop_assert_eq!(
                dominators.dominates(avoided, node),
                !without.contains(&node),
                "{:?} {:?}",
                avoided,
                node
            );
        }
    }
    for block in graph.block_ids() {
        let closest = dominators.immediate(block);
        let others = all.iter().filter(|&&node| node != Node::Block(block));
        for &other in others.filter(|&&node| dominators.dominates(node, Node::Block(block))) {
            prop_assert!(dominators.dominates(other, closest));
        }
        prop_assert_ne!(closest, Node::Block(block));
    }
    Ok(())
}

/// Checks the properties of the loop nest that hold for every graph.
fn check_nest(graph: &Graph, loops: &Loops) -> Result<(), TestCaseError> {
    prop_assert!(has_no_cycle(graph, |edge| loops.is_back(edge)));
    for (found, id) in loops.loops().iter().zip(0..) {
        let blocks: Vec<BlockId> = loops.blocks(LoopId(id)).collect();
        prop_assert!(blocks.contains(&found.header));
        for &edge in &found.back_edges {
            prop_assert_eq!(graph.edge(edge).to, Node::Block(found.header));
            prop_assert!(blocks.contains(&graph.edge(edge).from.block().unwrap()));
        }
        let outer = found.parent.map(|parent| &loops.loops()[parent.index()]);
        prop_assert_eq!(found.depth, 1 + outer.map_or(0, |outer| outer.depth));
        if let Some(parent) = found.parent {
            let around: Vec<BlockId> = loops.blocks(parent).collect();
            prop_assert!(around.len() > blocks.len());
            prop_assert!(blocks.iter().all(|block| around.contains(block)));
        }
        // Each block of the loop leads to the header, and the header to each block.
        let header = Node::Block(found.header);
        let after = reached(graph, header, None);
        for &block in &blocks {
            prop_assert!(after.contains(&Node::Block(block)));
            prop_assert!(reached(graph, Node::Block(block), None).contains(&header));
        }
        let enters_at = |edge: &Edge| {
            let is_inside = |node: Node| node.block().is_some_and(|block| blocks.contains(&block));
            is_inside(edge.to) && !is_inside(edge.from)
        };
        let mut entries = graph.edges().iter().filter(|edge| enters_at(edge));
        let at_header = entries.all(|edge| edge.to == header);
        prop_assert_eq!(found.is_reducible, at_header);
    }
    for block in graph.block_ids() {
        let depth = (0..loops.loops().len() as u32)
            .filter(|&id| loops.contains(LoopId(id), block))
            .count();
        prop_assert_eq!(loops.depth(Node::Block(block)) as usize, depth);
    }
    Ok(())
}

/// Checks the loops of a reducible graph against the strongly connected regions.
fn check_regions(graph: &Graph, loops: &Loops) -> Result<(), TestCaseError> {
    let dominators = Dominators::of(graph);
    let regions = graph
        .block_ids()
        .filter_map(|header| Some((header, region(graph, &dominators, header)?)));
    let expected: Vec<(BlockId, Vec<BlockId>)> = regions.collect();
    let found = loops.loops().iter().zip(0..);
    let found: Vec<(BlockId, Vec<BlockId>)> = found
        .map(|(found, id)| (found.header, loops.blocks(LoopId(id)).collect()))
        .collect();
    prop_assert_eq!(found, expected);
    prop_assert!(loops.loops().iter().all(|found| found.is_reducible));
    for edge in graph.edge_ids() {
        let ends = graph.edge(edge);
        let is_back = dominators.dominates(ends.to, ends.from);
        prop_assert_eq!(loops.is_back(edge), is_back);
    }
    Ok(())
}

/// Checks the counts that follow from the chords' counts on a walk.
fn check_counts(graph: &Graph, loops: &Loops, taken: &[EdgeId]) -> Result<(), TestCaseError> {
    let mut edges = vec![0; graph.edges().len()];
    let mut blocks = vec![0; graph.blocks().len()];
    for &edge in taken {
        edges[edge.index()] += 1;
        if let Node::Block(to) = graph.edge(edge).to {
            blocks[to.index()] += 1;
        }
    }
    prop_assert_eq!(check(graph, &edges), Ok(()));
    for measured in [None, Some(&edges[..]), Some(&edges[..edges.len() / 2])] {
        let chords = Chords::of(graph, loops, measured);
        let independent = graph.edges().len() + 1 - (graph.blocks().len() + 1);
        prop_assert_eq!(chords.edges().len(), independent);
        let counts: Vec<u64> = chords.edges().iter().map(|e| edges[e.index()]).collect();
        let expected = Counts {
            edges: edges.clone(),
            blocks: blocks.clone(),
        };
        prop_assert_eq!(chords.solve(graph, &counts), Ok(expected));
    }
    // Any wrong count of one edge is found, unless both its ends are the same.
    for edge in graph.edge_ids() {
        let ends = graph.edge(edge);
        let mut wrong = edges.clone();
        wrong[edge.index()] += 1;
        prop_assert_eq!(check(graph, &wrong).is_ok(), ends.from == ends.to);
    }
    Ok(())
}

/// Checks the paths of a walk against those that its numbers stand for.
fn check_walk(
    graph: &Graph,
    cut: &Cut,
    numbering: &Numbering,
    taken: &[EdgeId],
) -> Result<(), TestCaseError> {
    let mut sum = 0_u64;
    let mut current: Option<Path> = None;
    for &edge in taken {
        let ends = graph.edge(edge);
        let mut begin = None;
        let mut end = None;
        match numbering.action(edge) {
            Action::Start(start) => {
                prop_assert_eq!(ends.from, Node::Entry);
                begin = Some((start, Start::Entry(edge)));
            }
            Action::Add(increment) => {
                sum = sum.wrapping_add(increment);
                let path = current.as_mut().unwrap();
                path.edges.push(edge);
                path.blocks.extend(ends.to.block());
            }
            Action::End(increment) => {
                prop_assert_eq!(ends.to, Node::Exit);
                end = Some((increment, End::Exit(edge)));
            }
            Action::Restart { end: a, start: b } => {
                prop_assert!(cut.is_cut(edge));
                end = Some((a, End::Cut(edge)));
                begin = Some((b, Start::Header(ends.to.block().unwrap())));
            }
        }
        if let Some((increment, end)) = end {
            let number = sum.wrapping_add(increment);
            let path = current.take().map(|path| Path { end, ..path });
            prop_assert!(path.is_some());
            prop_assert_eq!(numbering.decode(number), path);
        }
        if let Some((start_sum, start)) = begin {
            sum = start_sum;
            current = Some(Path {
                start,
                blocks: ends.to.block().into_iter().collect(),
                edges: Vec::new(),
                end: End::Exit(edge),
            });
        }
    }
    Ok(())
}

/// Checks that the first numbers stand for different paths, which have these numbers.
fn check_numbers(graph: &Graph, numbering: &Numbering) -> Result<(), TestCaseError> {
    let mut paths = HashSet::new();
    let few = numbering.paths().min(3000);
    for number in 0..few {
        let path = numbering.decode(number).unwrap();
        let mut sum = match path.start {
            Start::Entry(edge) => match numbering.action(edge) {
                Action::Start(start) => start,
                other => panic!("{other:?}"),
            },
            Start::Header(header) => {
                let starts = graph.arriving(Node::Block(header)).iter();
                let mut starts = starts.filter_map(|&edge| match numbering.action(edge) {
                    Action::Restart { start, .. } => Some(start),
                    _ => None,
                });
                let first = starts.next().unwrap();
                prop_assert!(starts.all(|start| start == first));
                first
            }
        };
        for &edge in &path.edges {
            match numbering.action(edge) {
                Action::Add(increment) => sum = sum.wrapping_add(increment),
                other => panic!("{other:?}"),
            }
        }
        let end = match path.end {
            End::Exit(edge) | End::Cut(edge) => numbering.action(edge),
        };
        match end {
            Action::End(end) | Action::Restart { end, .. } => sum = sum.wrapping_add(end),
            other => panic!("{other:?}"),
        }
        prop_assert_eq!(sum, number);
        prop_assert!(paths.insert(path));
    }
    prop_assert_eq!(numbering.decode(numbering.paths()), None);
    prop_assert_eq!(numbering.decode(u64::MAX), None);
    Ok(())
}

/// The number of paths by a plain search, up to a limit.
fn count_paths(graph: &Graph, loops: &Loops, cut: &Cut, limit: u64) -> u64 {
    let headers = loops.loops().iter().map(|found| Node::Block(found.header));
    let entries = graph.leaving(Node::Entry).iter().map(|&e| graph.edge(e).to);
    let mut work: Vec<Node> = headers.chain(entries).collect();
    let mut paths = 0;
    while let Some(node) = work.pop() {
        for &edge in graph.leaving(node) {
            let to = graph.edge(edge).to;
            if cut.is_cut(edge) || to == Node::Exit {
                paths += 1;
            } else {
                work.push(to);
            }
        }
        if paths >= limit {
            return limit;
        }
    }
    paths
}

fn check_all(graph: &Graph, choices: &[prop::sample::Index]) -> Result<(), TestCaseError> {
    let loops = Loops::of(graph);
    check_dominators(graph)?;
    check_nest(graph, &loops)?;
    if is_reducible(graph, &Dominators::of(graph)) {
        check_regions(graph, &loops)?;
    }
    let taken = walk(graph, choices);
    let ends_at_exit = taken.last().is_none_or(|&e| graph.edge(e).to == Node::Exit);
    if ends_at_exit {
        check_counts(graph, &loops, &taken)?;
    }
    let weights: Vec<u64> = (0..graph.edges().len() as u64).map(|i| i * 7 % 5).collect();
    for cut in [Cut::back(graph, &loops), Cut::headers(graph, &loops)] {
        prop_assert!(has_no_cycle(graph, |edge| cut.is_cut(edge)));
        for measured in [None, Some(&weights[..])] {
            let numbering = Numbering::of(graph, &loops, &cut, measured).unwrap();
            check_walk(graph, &cut, &numbering, &taken)?;
            check_numbers(graph, &numbering)?;
            const LIMIT: u64 = 5000;
            let paths = count_paths(graph, &loops, &cut, LIMIT);
            prop_assert_eq!(numbering.paths().min(LIMIT), paths);
        }
    }
    Ok(())
}

fn choices() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn results_for_any_graph_agree_with_walks_and_searches(
        graph in any_graph(),
        choices in choices(),
    ) {
        check_all(&graph, &choices)?;
    }

    #[test]
    fn results_for_reducible_graphs_agree_with_walks_and_searches(
        graph in reducible_graph(),
        choices in choices(),
    ) {
        prop_assert!(is_reducible(&graph, &Dominators::of(&graph)));
        check_all(&graph, &choices)?;
    }

    /// Arbitrary counts of chords give balanced counts of all edges, or a contradiction.
    #[test]
    fn any_counts_give_a_result(
        graph in any_graph(),
        counts in prop::collection::vec(prop_oneof![0..9_u64, any::<u64>()], 100),
    ) {
        let loops = Loops::of(&graph);
        let chords = Chords::of(&graph, &loops, None);
        let counts = &counts[..chords.edges().len().min(100)];
        if let Ok(all) = chords.solve(&graph, counts) {
            prop_assert_eq!(check(&graph, &all.edges), Ok(()));
        }
    }
}

/// The example of Ball and Larus, figure 1: a graph of six blocks with six paths.
#[test]
fn the_example_of_the_paper_has_six_paths() {
    let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5];
    let edges = [
        (a, c),
        (a, b),
        (b, c),
        (b, d),
        (c, d),
        (d, f),
        (d, e),
        (e, f),
    ];
    let graph = graph(6, &edges, &[]);
    let loops = Loops::of(&graph);
    let numbering = Numbering::of(&graph, &loops, &Cut::back(&graph, &loops), None).unwrap();
    assert_eq!(numbering.paths(), 6);
    let is_chord = |edge: &Action| matches!(edge, Action::Add(by) if *by != 0);
    let chords = numbering.actions().iter().filter(|a| is_chord(a)).count();
    assert!(chords <= 4, "{:?}", numbering.actions());
}

#[test]
fn too_many_paths_are_reported() {
    // 64 conditions in a row.
    let condition = |at: usize| [(at, at + 1), (at, at + 2), (at + 1, at + 2)];
    let edges = |conditions: usize| (0..conditions).flat_map(move |i| condition(2 * i));
    let of = |conditions: usize| {
        let edges: Vec<(usize, usize)> = edges(conditions).collect();
        let graph = graph(2 * conditions + 1, &edges, &[]);
        let loops = Loops::of(&graph);
        Numbering::of(&graph, &loops, &Cut::back(&graph, &loops), None).map(|numbering| {
            let path = numbering.decode(numbering.paths() - 1).unwrap();
            assert_eq!(path.blocks.first(), Some(&BlockId(0)));
            numbering.paths()
        })
    };
    assert_eq!(of(63), Ok(1 << 63));
    assert_eq!(of(64), Err(TooManyPaths));
}

#[test]
fn counts_that_contradict_each_other_are_reported() {
    // Two branches that meet: the third edge is derived.
    let graph = graph(4, &[(0, 1), (0, 2), (1, 3), (2, 3)], &[]);
    let loops = Loops::of(&graph);
    let chords = Chords::of(&graph, &loops, None);
    assert_eq!(
        chords.solve(&graph, &[]),
        Err(Contradiction::Length {
            expected: chords.edges().len(),
            found: 0
        })
    );
    let solve = |weights: [u64; 6], counts: [u64; 2]| {
        let chords = Chords::of(&graph, &loops, Some(&weights));
        chords.solve(&graph, &counts)
    };
    // The edges 1 and 2 leave the first block, and edge 0 arrives there.
    let solved = solve([9, 1, 1, 9, 9, 9], [u64::MAX, 1]);
    assert!(
        matches!(solved, Err(Contradiction::EdgeOverflow(_))),
        "{solved:?}"
    );
    assert_eq!(
        solve([1, 1, 9, 9, 9, 9], [4, 5]),
        Err(Contradiction::Negative(EdgeId(2)))
    );
    let mut unbalanced = vec![0; graph.edges().len()];
    unbalanced[0] = 3;
    let error = check(&graph, &unbalanced).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the function is entered 0 times and left 3 times"
    );
}

/// Two blocks that jump to each other, both entered from outside.
#[test]
fn a_loop_with_two_entries_is_not_reducible() {
    let graph = graph(4, &[(0, 1), (0, 2), (1, 2), (2, 1), (2, 3)], &[]);
    let loops = Loops::of(&graph);
    let [found] = loops.loops() else {
        panic!("{loops:?}");
    };
    assert_eq!((found.header, found.is_reducible), (BlockId(1), false));
    assert!(loops.contains(LoopId(0), BlockId(2)));
}

#[test]
fn critical_edges_are_counted_on_the_branch() {
    // A condition with one branch.
    let graph = graph(3, &[(0, 1), (0, 2), (1, 2)], &[2]);
    let places: Vec<Option<Place>> = graph.edge_ids().map(|e| Place::of(&graph, e)).collect();
    let at = |block: u32| (BlockId(block), graph.block(BlockId(block)).range.start);
    let [start, end, branch, last] = [at(1), at(1), at(0), at(2)];
    assert_eq!(
        places,
        [
            Some(Place::Start(BlockId(0), at(0).1)),
            None,
            Some(Place::Start(start.0, start.1)),
            Some(Place::Branch(branch.0, branch.1)),
            Some(Place::End(end.0, end.1)),
            Some(Place::End(last.0, last.1)),
        ]
    );
}
