//! The counts inside functions: of their edges, blocks and loops, from those of the counters.

use std::collections::{BTreeSet, HashMap};

use patcher::Svma;
use patcher::inside::{self, EdgeId, Path, PathTable};

use super::frames::Frames;
use crate::segment::{
    Document, EdgeDoc, FunctionDoc, InsideDoc, ModuleDoc, PathCounts, Role, Segment, edges_of,
};
use ipath_profile::report::places::path_name;
use ipath_profile::{
    Block, Edge, EdgeKind, Frame, Inside, Loop, PathEnd, PathStart, PathTotals, Profile, TakenPath,
};

/// The functions whose edges are counted.
pub(super) struct Insides(Vec<Graph>);

/// A function whose edges are counted.
struct Graph {
    doc: InsideDoc,
    /// The profile's entry, with counts of 0.
    entry: Inside,
    /// For each edge of the document, the index of the profile's edge. `None` between segments of
    /// one block.
    shown: Vec<Option<usize>>,
    /// The edge of arrivals in the middle of each block with calls, and that of departures.
    in_calls: Vec<Option<[usize; 2]>>,
    /// The numbers of the paths. `None` if paths are not counted.
    paths: Option<PathTable>,
}

impl Insides {
    /// The functions of a document. Those with a damaged graph are left out.
    pub(super) fn of(document: &Document, frames: &mut Frames) -> Self {
        let place = |f: &FunctionDoc| (f.module, f.address);
        let rows = document.rows().enumerate();
        // Timed paths have a row of their own.
        let key = |f: &FunctionDoc| (place(f), f.has_timed_paths());
        let rows = rows.filter(|(_, (_, f))| match f.role {
            Role::Measured | Role::Edges => true,
            _ => f.has_timed_paths(),
        });
        let rows: HashMap<_, usize> = rows.map(|(row, (_, f))| (key(f), row)).collect();
        let mut graphs = Vec::new();
        for (_, function) in document.measured() {
            let doc = function.inside.as_deref().filter(|doc| doc.is_sound());
            let Some((doc, &of)) = doc.zip(rows.get(&key(function))) else {
                continue;
            };
            let mut graph = Graph::new(doc.clone(), of);
            if let Some(module) = document.modules.get(function.module) {
                graph.find_positions(module, frames);
            }
            graphs.push(graph);
        }
        Self(graphs)
    }

    /// The frame of path `number` inside a function, given by its index in the profile.
    pub(super) fn frame_of_path(&self, profile: &Profile, function: usize, number: u64) -> Frame {
        let of = &profile.functions[function];
        let mut graphs = self.0.iter();
        let graph = graphs.find(|graph| graph.entry.function == function);
        let taken = graph.and_then(|graph| {
            let path = graph.paths.as_ref()?.decode(number)?;
            Some((&graph.entry, graph.taken(number, &path, 0)))
        });
        let first = taken.as_ref().and_then(|(entry, taken)| {
            let first = taken.blocks.first()?;
            entry.blocks.get(*first)
        });
        let name = taken.as_ref().map_or_else(
            || format!("path {number}"),
            |(entry, taken)| path_name(profile, entry, taken),
        );
        Frame {
            module: Some(of.module),
            address: first.map_or(of.address, |block| block.address),
            function: Some(name),
            file: first.and_then(|block| block.file.clone()),
            line: first.and_then(|block| block.line),
            path: Some(number),
            ..Frame::default()
        }
    }

    /// The present counts.
    pub(super) fn look(&self, segment: &Segment) -> Vec<Inside> {
        self.0.iter().map(|graph| graph.look(segment)).collect()
    }
}

impl Graph {
    fn new(doc: InsideDoc, function: usize) -> Self {
        let block = |end: Option<u32>| end.map(|segment| doc.segments[segment as usize] as usize);
        let mut edges: Vec<Edge> = Vec::new();
        let mut shown = Vec::new();
        let mut has_calls = vec![false; doc.blocks.len()];
        for &(from, to, kind) in &doc.edges {
            let (from_block, to_block) = (block(from), block(to));
            // Within a block, each segment leads to the next one.
            let is_within = from_block.is_some()
                && from_block == to_block
                && from.zip(to).is_some_and(|(from, to)| to == from + 1);
            let kind = match kind {
                EdgeDoc::Left => {
                    has_calls[from_block.unwrap_or_default()] = true;
                    shown.push(None);
                    continue;
                }
                _ if is_within => {
                    shown.push(None);
                    continue;
                }
                EdgeDoc::Entry => EdgeKind::Entry,
                EdgeDoc::Fall => EdgeKind::Fall,
                EdgeDoc::Taken => EdgeKind::Taken,
                EdgeDoc::Case => EdgeKind::Case,
                EdgeDoc::Exit => EdgeKind::Exit,
            };
            shown.push(Some(edges.len()));
            edges.push(Edge {
                from: from_block,
                to: to_block,
                kind,
                in_call: false,
                count: 0,
            });
        }
        let in_calls = (0..doc.blocks.len()).map(|block| {
            has_calls[block].then(|| {
                let of = |from, to, kind| Edge {
                    from,
                    to,
                    kind,
                    in_call: true,
                    count: 0,
                };
                edges.push(of(None, Some(block), EdgeKind::Entry));
                edges.push(of(Some(block), None, EdgeKind::Exit));
                [edges.len() - 2, edges.len() - 1]
            })
        });
        let in_calls = in_calls.collect();
        let blocks = doc.blocks.iter().map(|&(address, size)| Block {
            address,
            size,
            ..Block::default()
        });
        let loops = doc.loops.iter().map(|&(header, parent, _)| Loop {
            header: header as usize,
            parent: parent.map(|parent| parent as usize),
            ..Loop::default()
        });
        let entry = Inside {
            function,
            uncertain: 0,
            blocks: blocks.collect(),
            loops: loops.collect(),
            edges,
            paths: Vec::new(),
            path_totals: None,
        };
        Self {
            paths: doc.path_table(),
            doc,
            entry,
            shown,
            in_calls,
        }
    }

    /// Looks the source positions of blocks and loops up.
    fn find_positions(&mut self, module: &ModuleDoc, frames: &mut Frames) {
        // A hub of jumps has no code of its own.
        let blocks = self.entry.blocks.iter_mut().filter(|block| block.size > 0);
        for block in blocks {
            let position = frames.position(module, Svma(block.address));
            (block.file, block.line) = position.unzip();
        }
        for (index, (_, _, sources)) in self.doc.loops.iter().enumerate() {
            let header = &self.entry.blocks[self.entry.loops[index].header];
            // In reports, a loop has the same lines everywhere.
            let shown = frames.loop_at(module, Svma(header.address), header.size);
            let (file, line, end_line) = match shown.filter(|shown| shown.line.is_some()) {
                Some(shown) => (shown.file, shown.line, shown.end_line),
                None => self.lines_of_loop(index, sources),
            };
            let of = &mut self.entry.loops[index];
            (of.file, of.line, of.end_line) = (file, line, end_line);
        }
    }

    /// The file of the header of a loop, and the first and last line of its blocks in that file.
    fn lines_of_loop(
        &self,
        index: usize,
        sources: &[u32],
    ) -> (Option<String>, Option<u32>, Option<u32>) {
        let header = self.entry.loops[index].header;
        let file = self.entry.blocks[header].file.clone();
        let body = body(&self.entry, header as u32, sources);
        let blocks = body.iter().map(|&block| &self.entry.blocks[block as usize]);
        let blocks = blocks.filter(|block| block.file == file);
        let lines = blocks.filter_map(|block| block.line);
        (file.clone(), lines.clone().min(), lines.max())
    }

    /// The present counts.
    ///
    /// The counters are read twice. A count is a sum and difference of counters, so it is off by no
    /// more than all of them have advanced in between.
    fn look(&self, segment: &Segment) -> Inside {
        let (counts, advance) = read_twice(
            || segment.edge_counters(&self.doc),
            |counts| counts.iter().flatten().copied().fold(0, u64::wrapping_add),
        );
        let mut entry = self.entry.clone();
        let layouts = self.doc.layouts();
        let uncertain = layouts.map(|layout| segment.counts(layout.uncertain(), 1)[0]);
        entry.uncertain = uncertain.fold(advance, u64::saturating_add);
        for &(of, number) in self.doc.trips.iter().flatten() {
            let own = &mut entry.loops[of as usize];
            (own.trips, own.unknown_trips) = segment.trips(&self.doc, number);
        }
        let along = self.look_at_paths(segment, &mut entry);
        // Without counters of edges, their counts are those on all paths.
        let all = match along {
            Some(along) if self.doc.counted.is_empty() => Some(along),
            _ => self.doc.solve(&counts),
        };
        if let Some(all) = all {
            self.enter(&all, &mut entry);
        }
        entry
    }

    /// Enters the present counts of paths. Returns for each edge how often it was taken on them.
    /// `None` if paths are not counted.
    fn look_at_paths(&self, segment: &Segment, entry: &mut Inside) -> Option<Vec<i128>> {
        let table = self.paths.as_ref()?;
        let (counts, advance) =
            read_twice(|| segment.path_counts(&self.doc), PathCounts::transfers);
        let mut along = vec![0_i128; self.doc.edges.len()];
        for (&number, &count) in &counts.counts {
            let Some(path) = table.decode(number) else {
                continue;
            };
            for edge in edges_of(&path) {
                along[edge.index()] += i128::from(count);
            }
            entry.paths.push(self.taken(number, &path, count));
        }
        entry.path_totals = Some(PathTotals {
            possible: table.paths(),
            split: self
                .doc
                .paths
                .iter()
                .any(|paths| !paths.into_loops.is_empty()),
            begun: counts.begun,
            unknown: counts.unknown,
            uncounted: counts.uncounted,
        });
        if self.doc.counted.is_empty() {
            // The edges of these paths are in no count.
            let missing = [
                entry.unfinished(),
                counts.unknown,
                counts.uncounted,
                advance,
            ];
            let sum = missing.into_iter().fold(0, u64::saturating_add);
            entry.uncertain = entry.uncertain.saturating_add(sum);
        }
        Some(along)
    }

    /// True if paths end at the edge because it leads into a loop.
    fn is_into_loop(&self, edge: EdgeId) -> bool {
        let paths = self.doc.paths.as_ref();
        paths.is_some_and(|paths| paths.is_into_loop(edge.0))
    }

    /// The profile's entry for a path. A block is entered once on it, at its first segment.
    fn taken(&self, number: u64, path: &Path, count: u64) -> TakenPath {
        let segments = path.blocks.iter();
        let blocks = segments.map(|segment| self.doc.segments[segment.index()] as usize);
        let mut blocks: Vec<usize> = blocks.collect();
        blocks.dedup();
        TakenPath {
            number,
            start: Some(match path.start {
                inside::Start::Entry(_) => PathStart::Entry,
                inside::Start::Header(_) => PathStart::Loop,
            }),
            blocks,
            end: Some(match path.end {
                inside::End::Exit(_) => PathEnd::Exit,
                inside::End::Cut(edge) if self.is_into_loop(edge) => PathEnd::Enter,
                inside::End::Cut(_) => PathEnd::Loop,
            }),
            count,
            contexts: Vec::new(),
        }
    }

    /// Enters the counts of all edges of the document.
    fn enter(&self, all: &[i128], entry: &mut Inside) {
        let clamped = |count: i128| u64::try_from(count.max(0)).unwrap_or(u64::MAX);
        for ((&count, shown), (from, _, kind)) in all.iter().zip(&self.shown).zip(&self.doc.edges) {
            if let Some(index) = *shown {
                entry.edges[index].count = clamped(count);
            } else if *kind == EdgeDoc::Left
                && let Some(segment) = from
                && let Some([arrivals, departures]) =
                    self.in_calls[self.doc.segments[*segment as usize] as usize]
            {
                let left = &mut entry.edges[departures].count;
                *left = left.saturating_add(clamped(count));
                let waited = &mut entry.edges[arrivals].count;
                *waited = waited.saturating_add(clamped(-count));
            }
        }
        let mut arrivals = vec![0_u64; entry.blocks.len()];
        for edge in &entry.edges {
            if let Some(to) = edge.to {
                arrivals[to] = arrivals[to].saturating_add(edge.count);
            }
        }
        for (block, count) in entry.blocks.iter_mut().zip(arrivals) {
            block.count = count;
        }
        let starts = entry.starts();
        for (of, (header, _, sources)) in entry.loops.iter_mut().zip(&self.doc.loops) {
            let is_back = |edge: &&Edge| {
                let is_source = |from| sources.contains(&(from as u32));
                edge.to == Some(*header as usize) && edge.from.is_some_and(is_source)
            };
            let back = entry.edges.iter().filter(is_back).map(|edge| edge.count);
            let back = back.fold(0, u64::saturating_add);
            of.iterations = starts[of.header];
            of.entries = of.iterations.saturating_sub(back);
        }
    }
}

/// Reads counters until they do not change meanwhile. If they always change, returns how far the
/// sum of all, `sum`, has advanced during the last two readings.
fn read_twice<T>(read: impl Fn() -> T, sum: impl Fn(&T) -> u64) -> (T, u64) {
    /// The most readings.
    const TRIES: usize = 4;
    let mut counts = read();
    let mut advance = 0;
    for _ in 0..TRIES {
        let again = read();
        advance = sum(&again).wrapping_sub(sum(&counts));
        if advance == 0 {
            break;
        }
        counts = again;
    }
    (counts, advance)
}

/// The blocks of a loop: its header, and those from which control reaches the `sources` without
/// passing through it.
fn body(entry: &Inside, header: u32, sources: &[u32]) -> BTreeSet<u32> {
    let mut body = BTreeSet::from([header]);
    let mut work = sources.to_vec();
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); entry.blocks.len()];
    for edge in &entry.edges {
        if let (Some(from), Some(to)) = (edge.from, edge.to) {
            before[to].push(from as u32);
        }
    }
    while let Some(block) = work.pop() {
        if body.insert(block) {
            work.extend(&before[block as usize]);
        }
    }
    body
}
