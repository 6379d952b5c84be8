//! The counts inside functions at the last two samples, and the lines that show them.

use std::rc::Rc;

use ipath_profile::report::places::{hottest_paths, paths_not_counted};
use ipath_profile::{EdgeKind, FunctionPart, Inside, Profile, TakenPath};

use super::tree::SiteId;

/// The number of lines above the counts: the name, the numbers of the function, and the titles.
pub(super) const HEAD: usize = 3;

/// The identity of a function: its module's path and base address, its own address, and its part.
type Identity = (String, Option<u64>, u64, FunctionPart);

/// The counts inside the functions of the displayed sample.
#[derive(Default)]
pub(super) struct Insides {
    now: Vec<Entry>,
    before: Vec<Entry>,
    /// The time of the displayed sample since the start of the session, in nanoseconds.
    at: Option<u64>,
    /// The time between the last two samples, in nanoseconds.
    interval: Option<u64>,
}

/// The counts inside one function.
struct Entry {
    identity: Identity,
    inside: Inside,
    /// The innermost loop of each block.
    nest: Rc<[Option<usize>]>,
}

/// The counts inside one function at the last two samples.
#[derive(Clone, Copy)]
pub(super) struct Counts<'i> {
    pub(super) inside: &'i Inside,
    before: Option<&'i Inside>,
    interval: Option<u64>,
    nest: &'i [Option<usize>],
}

/// The counts inside a function on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panel {
    /// The function.
    pub(super) site: SiteId,
    pub(super) list: List,
    /// The first line of the list on the screen.
    pub(super) top: usize,
    /// The number of places that are left out at the start of long paths.
    pub(super) along: usize,
}

/// A list of the counts inside a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    /// The blocks, with loops and edges.
    #[default]
    Blocks,
    /// The paths.
    Paths,
}

/// A line about the inside of a function. Indentation is by loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsideRow {
    /// A loop, before its header.
    Loop { number: usize, depth: usize },
    /// The times of a loop that is timed by itself.
    Times { number: usize, depth: usize },
    /// The histogram of the iterations of a loop's entries.
    Trips { number: usize, depth: usize },
    /// A block. `begins` if the block before is not of the same source line.
    Block {
        number: usize,
        depth: usize,
        begins: bool,
    },
    /// The edges at the end of a block that has several.
    Edges { block: usize, depth: usize },
}

/// An edge at the end of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Way {
    /// The block to which the edge leads. `None` if it leaves the function.
    pub(super) to: Option<usize>,
    /// True if the function is left inside of a call.
    pub(super) in_call: bool,
    /// The share in all edges at the end of the block. `None` if none was taken.
    pub(super) share: Option<f64>,
}

impl Insides {
    /// Takes in a sample.
    pub(super) fn sample(&mut self, profile: &Profile) {
        let elapsed = profile.session.elapsed_ns;
        self.interval = self.at.and_then(|at| elapsed.checked_sub(at));
        self.at = Some(elapsed);
        self.before = std::mem::take(&mut self.now);
        for inside in &profile.inside {
            let Some(function) = profile.functions.get(inside.function) else {
                continue;
            };
            let module = profile.modules.get(function.module);
            let (path, base) = module.map(|m| (m.path.clone(), m.base)).unwrap_or_default();
            let identity = (path, base, function.address, function.part());
            let known = find(&self.before, &identity, inside);
            self.now.push(Entry {
                nest: known.map_or_else(|| nest(inside), |known| Rc::clone(&known.nest)),
                identity,
                inside: inside.clone(),
            });
        }
    }

    /// The counts inside the function at this index in the displayed sample. `None` if they were
    /// not counted.
    pub(super) fn of(&self, function: usize) -> Option<Counts<'_>> {
        let mut now = self.now.iter();
        let now = now.find(|entry| entry.inside.function == function)?;
        let before = find(&self.before, &now.identity, &now.inside);
        Some(Counts {
            inside: &now.inside,
            before: before.map(|entry| &entry.inside),
            interval: self.interval.filter(|&ns| ns > 0),
            nest: &now.nest,
        })
    }
}

/// The entry of a function with this graph.
fn find<'e>(entries: &'e [Entry], identity: &Identity, inside: &Inside) -> Option<&'e Entry> {
    let size = |inside: &Inside| (inside.blocks.len(), inside.edges.len());
    let mut entries = entries.iter();
    entries.find(|known| known.identity == *identity && size(&known.inside) == size(inside))
}

/// The innermost loop of each block: the last one, with the loops around it first, whose header
/// reaches the block and is reached from it without the headers around.
fn nest(inside: &Inside) -> Rc<[Option<usize>]> {
    let blocks = inside.blocks.len();
    let (mut after, mut before) = (vec![Vec::new(); blocks], vec![Vec::new(); blocks]);
    for edge in &inside.edges {
        if let (Some(from), Some(to)) = (edge.from, edge.to)
            && from.max(to) < blocks
        {
            after[from].push(to);
            before[to].push(from);
        }
    }
    let mut order: Vec<(usize, usize)> = (0..inside.loops.len())
        .map(|number| (depth(inside, Some(number)), number))
        .collect();
    order.sort_unstable();
    let mut nest = vec![None; blocks];
    for (_, number) in order {
        let header = inside.loops[number].header;
        let mut around = vec![false; blocks];
        for outer in loops_from(inside, inside.loops[number].parent) {
            around[inside.loops[outer].header] = true;
        }
        let down = reached(&after, header, &around);
        let up = reached(&before, header, &around);
        for block in (0..blocks).filter(|&block| down[block] && up[block]) {
            nest[block] = Some(number);
        }
    }
    nest.into()
}

/// The blocks that are reached from `start` without passing a block of `around`.
fn reached(next: &[Vec<usize>], start: usize, around: &[bool]) -> Vec<bool> {
    let mut seen = vec![false; next.len()];
    let mut work = vec![start];
    while let Some(block) = work.pop() {
        if !around[block] && !std::mem::replace(&mut seen[block], true) {
            work.extend(&next[block]);
        }
    }
    seen
}

/// A loop and the loops around it. A damaged profile may have a circle of loops.
fn loops_from(inside: &Inside, innermost: Option<usize>) -> impl Iterator<Item = usize> + '_ {
    let parent = |&number: &usize| inside.loops.get(number).and_then(|own| own.parent);
    let loops = std::iter::successors(innermost, parent);
    loops.take(inside.loops.len())
}

/// The number of loops from this one outwards.
fn depth(inside: &Inside, innermost: Option<usize>) -> usize {
    loops_from(inside, innermost).count()
}

impl Counts<'_> {
    /// The lines: the blocks in address order, with their loops and edges.
    pub(super) fn rows(&self) -> Vec<InsideRow> {
        let mut rows = Vec::new();
        let mut line = None;
        for (number, block) in self.inside.blocks.iter().enumerate() {
            let innermost = self.nest[number];
            let mut heads = loops_from(self.inside, innermost);
            let head = heads.find(|&own| self.inside.loops[own].header == number);
            let depth = depth(self.inside, innermost);
            if let Some(number) = head {
                self.push_loop(number, depth.saturating_sub(1), &mut rows);
            }
            let source = block.source();
            rows.push(InsideRow::Block {
                number,
                depth,
                begins: number == 0 || source.is_none() || source != line || head.is_some(),
            });
            line = source;
            if self.ways(number).len() > 1 {
                rows.push(InsideRow::Edges {
                    block: number,
                    depth,
                });
            }
        }
        rows
    }

    /// Adds the lines of a loop.
    fn push_loop(&self, number: usize, depth: usize, rows: &mut Vec<InsideRow>) {
        let own = &self.inside.loops[number];
        rows.push(InsideRow::Loop { number, depth });
        if own.wall.is_some() {
            rows.push(InsideRow::Times { number, depth });
        }
        if !own.trips.is_empty() || own.unknown_trips > 0 {
            rows.push(InsideRow::Trips { number, depth });
        }
    }

    /// The number of lines of a list.
    pub(super) fn length(&self, list: List) -> usize {
        match list {
            List::Blocks => self.rows().len(),
            // A line says so if there is no path.
            List::Paths => self.inside.paths.len().max(1) + self.remarks().len(),
        }
    }

    /// True if paths are counted.
    pub(super) fn has_paths(&self) -> bool {
        self.inside.path_totals.is_some()
    }

    /// True if the times of paths were measured.
    pub(super) fn are_paths_timed(&self) -> bool {
        self.inside.paths.iter().any(|path| path.wall().is_some())
    }

    /// The paths that were taken, the hottest first.
    pub(super) fn paths(&self) -> Vec<&TakenPath> {
        hottest_paths(self.inside)
    }

    /// The blocks of the longest path.
    pub(super) fn longest_path(&self) -> usize {
        let lengths = self.inside.paths.iter().map(|path| path.blocks.len());
        lengths.max().unwrap_or(0)
    }

    /// The lines below the paths, about those in no count.
    pub(super) fn remarks(&self) -> Vec<String> {
        paths_not_counted(self.inside)
    }

    /// The executions of a path per second between the last two samples. `None` after only one
    /// sample.
    pub(super) fn path_rate(&self, path: &TakenPath) -> Option<f64> {
        // Paths are in the order of their numbers.
        let before = &self.before?.paths;
        let known = before.binary_search_by_key(&path.number, |path| path.number);
        let was = known.map_or(0, |at| before[at].count);
        Some(path.count.saturating_sub(was) as f64 * 1e9 / self.interval? as f64)
    }

    /// The executions of all counted paths.
    pub(super) fn path_sum(&self) -> u128 {
        let counts = self.inside.paths.iter();
        counts.map(|path| u128::from(path.count)).sum()
    }

    /// The edges at the end of a block, the most frequent ones first. Those inside calls that were
    /// never taken are left out.
    pub(super) fn ways(&self, block: usize) -> Vec<Way> {
        let edges = self.inside.edges.iter();
        let edges = edges.filter(|edge| edge.from == Some(block));
        let edges: Vec<_> = edges.filter(|e| !e.in_call || e.count > 0).collect();
        let sum = edges
            .iter()
            .fold(0_u64, |sum, e| sum.saturating_add(e.count));
        let mut ways: Vec<(u64, Way)> = Vec::new();
        for edge in edges {
            let to = edge.to.filter(|_| edge.kind != EdgeKind::Exit);
            let known = ways
                .iter_mut()
                .find(|(_, way)| way.to == to && way.in_call == edge.in_call);
            match known {
                Some((count, _)) => *count = count.saturating_add(edge.count),
                None => ways.push((
                    edge.count,
                    Way {
                        to,
                        in_call: edge.in_call,
                        share: None,
                    },
                )),
            }
        }
        ways.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let share = |count: u64| (sum > 0).then(|| count as f64 / sum as f64);
        let ways = ways.into_iter().map(|(count, way)| Way {
            share: share(count),
            ..way
        });
        ways.collect()
    }

    /// The executions of a block per second between the last two samples. `None` after only one
    /// sample.
    pub(super) fn rate(&self, block: usize) -> Option<f64> {
        let before = self.before?.blocks.get(block)?.count;
        let new = self.inside.blocks.get(block)?.count.saturating_sub(before);
        Some(new as f64 * 1e9 / self.interval? as f64)
    }

    /// The activations per second between the last two samples. `address` is the start of the
    /// function. `None` after only one sample.
    pub(super) fn activation_rate(&self, address: u64) -> Option<f64> {
        let now = self.inside.activations(address);
        let new = now.saturating_sub(self.before?.activations(address));
        Some(new as f64 * 1e9 / self.interval? as f64)
    }

    /// The count of a block as a share of the largest count, from 0 to 1.
    pub(super) fn share(&self, block: usize) -> f64 {
        let largest = self.inside.blocks.iter().map(|block| block.count).max();
        let count = self.inside.blocks.get(block).map_or(0, |block| block.count);
        match largest.unwrap_or(0) {
            0 => 0.0,
            largest => count as f64 / largest as f64,
        }
    }
}
