//! The counters of a function whose edges are counted.

use std::sync::Arc;

use patcher::inside::{self, BlockId, Counting, Edge, EdgeKind, Inside, LoopId, Node, Region};
use patcher::plan::{Effect, ProbePoint};

use super::refusal::Refusal;
use crate::segment::{EdgeDoc, InsideDoc};
use ipath_symbols::images::OpenImage;

/// The counters of a function.
#[derive(Clone)]
pub struct Counted {
    /// The name in reports.
    pub(super) name: String,
    /// The hook of each counter. Numbers are those within the function.
    pub(super) hooks: Vec<ProbePoint>,
    /// The loops that can run from copies with their counters.
    pub(super) regions: Vec<Arc<Region>>,
    /// The graph, with counters from number 0 on.
    pub(super) inside: InsideDoc,
    /// Why the edges cannot be counted. `None` if they can be.
    pub(super) refused: Option<Refusal>,
}

impl Counted {
    /// The counters of a function that has been analyzed. `name` is its name in reports.
    pub(super) fn of(
        image: &OpenImage,
        inside: Result<Inside, inside::Refusal>,
        name: String,
    ) -> Self {
        let counting = inside.map_err(|refusal| refusal.to_string());
        let counting = counting.and_then(|inside| {
            let counting = Counting::of(&inside.flow, &inside.graph);
            let counting = counting.map_err(|no_place| no_place.to_string())?;
            Ok((counting, inside))
        });
        match counting {
            Ok((counting, inside)) => Self {
                name,
                hooks: hooks(&counting),
                regions: regions(image, &inside, &counting),
                inside: document(&counting, &inside),
                refused: None,
            },
            Err(cause) => Self {
                name,
                hooks: Vec::new(),
                regions: Vec::new(),
                inside: InsideDoc::default(),
                refused: Some(Refusal::Inside(cause)),
            },
        }
    }
}

impl Counted {
    /// The hooks if these regions run from copies: the ways into the copies, and the counters
    /// outside of them.
    pub(super) fn hooks_beside(&self, regions: &[Arc<Region>]) -> Vec<ProbePoint> {
        let is_outside = |hook: &&ProbePoint| {
            let mut regions = regions.iter();
            regions.all(|region| region.index_of(hook.at).is_none())
        };
        let outside = self.hooks.iter().filter(is_outside).copied();
        let enter = regions.iter().zip(0..).flat_map(|(region, number)| {
            region.headers.iter().map(move |&(at, _)| ProbePoint {
                at,
                effect: Effect::Enter(number),
            })
        });
        outside.chain(enter).collect()
    }
}

fn regions(image: &OpenImage, inside: &Inside, counting: &Counting) -> Vec<Arc<Region>> {
    let regions = Region::all(image.image(), image.context(), inside, counting);
    regions.into_iter().map(Arc::new).collect()
}

fn hooks(counting: &Counting) -> Vec<ProbePoint> {
    let hooks = counting.counters.iter().map(|count| ProbePoint {
        at: count.at,
        effect: Effect::Count(count.counter),
    });
    hooks.collect()
}

/// The entry of the document for a graph and its counters.
fn document(counting: &Counting, inside: &Inside) -> InsideDoc {
    let number = |node: Node| node.block().map(|BlockId(number)| number);
    let kind = |edge: &Edge| match edge.kind {
        EdgeKind::Call | EdgeKind::Arrival => EdgeDoc::Entry,
        EdgeKind::Left => EdgeDoc::Left,
        _ if edge.to == Node::Exit => EdgeDoc::Exit,
        EdgeKind::FallThrough => EdgeDoc::Fall,
        EdgeKind::Taken => EdgeDoc::Taken,
        EdgeKind::Table => EdgeDoc::Case,
        EdgeKind::Departure => EdgeDoc::Exit,
    };
    let edges = counting.segments.edges().iter();
    let blocks = inside.graph.blocks().iter().map(|block| &block.range);
    let loops = inside.loops.loops().iter().map(|of| {
        let sources = of.back_edges.iter();
        let sources = sources.filter_map(|&edge| number(inside.graph.edge(edge).from));
        let parent = of.parent.map(|LoopId(number)| number);
        (of.header.0, parent, sources.collect())
    });
    InsideDoc {
        first: 0,
        blocks: blocks
            .map(|range| (range.start.0, range.end.0 - range.start.0))
            .collect(),
        segments: counting.blocks.iter().map(|block| block.0).collect(),
        edges: edges
            .map(|edge| (number(edge.from), number(edge.to), kind(edge)))
            .collect(),
        counted: counting.counters.iter().map(|count| count.edge.0).collect(),
        loops: loops.collect(),
    }
}
