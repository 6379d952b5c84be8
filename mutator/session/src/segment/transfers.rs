//! How often each edge inside a function was taken, from the counters.

use abi::count::MOST_COUNTERS;
use patcher::inside::{self, EdgeId, Node, Path, PathTable, solve};

use super::{EdgeDoc, InsideDoc, Segment};

impl InsideDoc {
    /// True if all its indexes are in range.
    pub(crate) fn is_sound(&self) -> bool {
        let (blocks, segments) = (self.blocks.len() as u32, self.segments.len() as u32);
        let is_segment = |end: &Option<u32>| end.is_none_or(|segment| segment < segments);
        let loops = self.loops.len() as u32;
        let is_loop = |of: &(u32, Option<u32>, Vec<u32>)| {
            let (header, parent, sources) = of;
            *header < blocks
                && parent.is_none_or(|parent| parent < loops)
                && sources.iter().all(|&source| source < blocks)
        };
        let is_edge = |edge: &u32| (*edge as usize) < self.edges.len();
        self.segments.iter().all(|&block| block < blocks)
            && self
                .edges
                .iter()
                .all(|(from, to, _)| is_segment(from) && is_segment(to))
            && self
                .layouts()
                .all(|layout| layout.counted.iter().all(is_edge))
            && self.loops.iter().all(is_loop)
            && self.trips.iter().flatten().all(|&(of, _)| of < loops)
            && self.paths.iter().all(|paths| {
                let has_counters = paths.hashed || paths.paths <= MOST_COUNTERS;
                has_counters && paths.back.iter().chain(&paths.into_loops).all(is_edge)
            })
    }

    /// The table of its paths. `None` if paths are not counted.
    pub(crate) fn path_table(&self) -> Option<PathTable> {
        let paths = self.paths.as_ref()?;
        let block = |segment: u32| Node::Block(inside::BlockId(segment));
        let edges = self.edges.iter().map(|&(from, to, kind)| inside::Edge {
            from: from.map_or(Node::Entry, block),
            to: to.map_or(Node::Exit, block),
            kind: match kind {
                EdgeDoc::Left => inside::EdgeKind::Left,
                _ => inside::EdgeKind::FallThrough,
            },
        });
        let edges: Vec<inside::Edge> = edges.collect();
        let is_cut = |edge: EdgeId| paths.is_back(edge.0) || paths.is_into_loop(edge.0);
        PathTable::of(self.segments.len(), &edges, is_cut).ok()
    }

    /// The counts of all edges from those of the counters: one list for each of
    /// [`InsideDoc::layouts`]. `None` if they do not follow.
    pub(crate) fn solve(&self, counts: &[Vec<u64>]) -> Option<Vec<i128>> {
        let outside = self.segments.len();
        let node = |end: Option<u32>| end.map_or(outside, |segment| segment as usize);
        let ends = self
            .edges
            .iter()
            .map(|&(from, to, _)| (node(from), node(to)));
        let ends: Vec<(usize, usize)> = ends.collect();
        let mut all = vec![0; ends.len()];
        for (layout, counts) in self.layouts().zip(counts) {
            let counted = layout.counted.iter().map(|&edge| edge as usize);
            let counted: Vec<(usize, u64)> = counted.zip(counts.iter().copied()).collect();
            let solved = solve(outside + 1, &ends, &counted).ok()?;
            all.iter_mut().zip(solved).for_each(|(sum, of)| *sum += of);
        }
        Some(all)
    }
}

impl Segment {
    /// The values of the counters of edges: one list for each of [`InsideDoc::layouts`].
    pub(crate) fn edge_counters(&self, inside: &InsideDoc) -> Vec<Vec<u64>> {
        let layouts = inside.layouts();
        layouts
            .map(|layout| self.counts(layout.first, layout.counted.len()))
            .collect()
    }

    /// How often each edge of a function was taken. If only paths are counted, on these. `None` if
    /// that does not follow from the counters, or if the graph is damaged.
    pub(crate) fn transfers(&self, inside: &InsideDoc) -> Option<Vec<u64>> {
        if !inside.is_sound() {
            return None;
        }
        if !inside.counted.is_empty() {
            let all = inside.solve(&self.edge_counters(inside))?;
            let clamped = |count: i128| u64::try_from(count.max(0)).unwrap_or(u64::MAX);
            return Some(all.into_iter().map(clamped).collect());
        }
        let table = inside.path_table()?;
        let mut all = vec![0_u64; inside.edges.len()];
        for (number, count) in self.path_counts(inside).counts {
            for edge in table.decode(number).iter().flat_map(edges_of) {
                all[edge.index()] = all[edge.index()].saturating_add(count);
            }
        }
        Some(all)
    }
}

/// All edges of a path, with those at its start and its end.
pub(crate) fn edges_of(path: &Path) -> impl Iterator<Item = EdgeId> + '_ {
    let start = match path.start {
        inside::Start::Entry(edge) => Some(edge),
        inside::Start::Header(_) => None,
    };
    let (inside::End::Exit(end) | inside::End::Cut(end)) = path.end;
    start
        .into_iter()
        .chain(path.edges.iter().copied())
        .chain([end])
}
