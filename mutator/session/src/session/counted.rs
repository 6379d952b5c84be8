//! The counters of a function whose edges or paths are counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use patcher::Svma;
use patcher::function::Function;
use patcher::inside::{
    self, BlockId, Counting, Edge, EdgeId, EdgeKind, Followed, Graph, Inside, Loop, LoopId, Node,
    Part, PathCall, PathCounting, PathHeader, PathStep, Pathless, Region, Traffic, TripCounting,
};
use patcher::plan::{Effect, ProbePoint};

use super::refusal::Refusal;
use crate::segment::{EdgeDoc, FunctionDoc, InsideDoc, PathsDoc, Role};
use ipath_symbols::images::OpenImage;

/// What is counted inside a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) edges: bool,
    pub(super) paths: bool,
    pub(super) trips: bool,
}

impl Wanted {
    /// Adds a part. Parts that are no whole change nothing.
    pub(super) fn add(&mut self, part: Part) {
        // The trips of a loop are shown beside its iterations.
        self.edges |= part == Part::Edges || part == Part::Trips;
        self.paths |= part == Part::Paths;
        self.trips |= part == Part::Trips;
    }

    /// The name of the counts inside a function, as given with `--at`.
    fn title(self, function: &str) -> String {
        let of_edges = match (self.edges, self.trips) {
            (_, true) => "loops",
            (true, false) => "edges",
            (false, false) => "",
        };
        let parts = [of_edges, if self.paths { "paths" } else { "" }];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{function}:{}", parts.join("+"))
    }

    /// What is counted by a row of the document.
    pub(super) fn of(function: &FunctionDoc) -> Self {
        let inside = function.inside.as_deref();
        let paths = inside.is_some_and(|inside| inside.paths.is_some());
        Self {
            edges: !paths || inside.is_some_and(|inside| !inside.counted.is_empty()),
            paths,
            trips: inside.is_some_and(|inside| inside.trips.is_some()),
        }
    }
}

/// The counters of a function.
#[derive(Clone)]
pub struct Counted {
    /// The name in reports.
    pub(super) name: String,
    pub(super) wanted: Wanted,
    /// The hook of each counter. Numbers are those within the function.
    pub(super) hooks: Vec<ProbePoint>,
    /// For each hook of an edge or path, the edge of the document at which it runs.
    edges: Vec<u32>,
    /// The calls in which an activation may be on a path.
    pub(super) calls: Vec<PathCall>,
    /// Addresses at which control may arrive from trampolines of hooks that were in before.
    pub(super) arrivals: Vec<Svma>,
    /// The loops that can run from copies with their counters.
    pub(super) regions: Vec<Arc<Region>>,
    /// The graph, with counters from number 0 on.
    pub(super) inside: InsideDoc,
    /// Why the edges cannot be counted. `None` if they can be.
    pub(super) refused: Option<Refusal>,
}

impl FunctionDoc {
    /// The name for messages. That of a row of counts inside a function contains their kind.
    pub fn title(&self) -> String {
        match self.role {
            Role::Edges => Wanted::of(self).title(&self.name),
            _ => self.name.clone(),
        }
    }
}

impl Counted {
    /// The name for messages: `FUNC:edges`.
    pub(super) fn title(&self) -> String {
        self.wanted.title(&self.name)
    }

    /// The counters of a function that has been analyzed. `name` is its name in reports. `measured`
    /// has a count for each edge of the document, if they are known: the counters are where these
    /// are low.
    pub(super) fn of(
        image: &OpenImage,
        function: &Function,
        inside: Result<&Inside, &inside::Refusal>,
        (name, wanted): (String, Wanted),
        measured: Option<&[u64]>,
    ) -> Self {
        let counters = inside.map_err(|refusal| refusal.to_string());
        let counters =
            counters.and_then(|inside| Counters::of(image, function, inside, (wanted, measured)));
        let (counters, refused) = match counters {
            Ok(counters) => (counters, None),
            Err(cause) => (Counters::default(), Some(Refusal::Inside(cause))),
        };
        Self {
            name,
            wanted,
            hooks: counters.hooks,
            edges: counters.edges,
            calls: counters.calls,
            arrivals: Vec::new(),
            regions: counters.regions,
            inside: counters.document,
            refused,
        }
    }
}

/// The hooks, the regions and the document of [`Counted`].
#[derive(Default)]
pub(super) struct Counters {
    pub(super) hooks: Vec<ProbePoint>,
    edges: Vec<u32>,
    calls: Vec<PathCall>,
    regions: Vec<Arc<Region>>,
    pub(super) document: InsideDoc,
}

impl Counters {
    /// The counters of the paths alone.
    ///
    /// # Errors
    /// The reason in words, if they cannot be counted.
    pub(super) fn of_paths(
        image: &OpenImage,
        function: &Function,
        inside: &Inside,
    ) -> Result<Self, String> {
        let wanted = Wanted {
            paths: true,
            ..Wanted::default()
        };
        Self::of(image, function, inside, (wanted, None))
    }

    /// Fails with the reason in words if what is wanted cannot be counted.
    fn of(
        image: &OpenImage,
        function: &Function,
        inside: &Inside,
        (wanted, measured): (Wanted, Option<&[u64]>),
    ) -> Result<Self, String> {
        let mut own = Self::default();
        if wanted.edges {
            let counting = Counting::of(&inside.flow, &inside.graph, measured);
            let counting = counting.map_err(|no_place| no_place.to_string())?;
            own.hooks = hooks(&counting);
            own.regions = regions(image, inside, &counting, measured);
            let segments = (&counting.segments, &counting.blocks[..]);
            own.document = document(segments, &counting.hubs, inside);
            let edges = counting.counters.iter().map(|count| count.edge.0);
            own.document.counted = edges.collect();
            own.edges.clone_from(&own.document.counted);
        }
        if wanted.paths || wanted.trips {
            let followed = own.follow(image, function, inside, (wanted, measured));
            followed.map_err(|pathless| pathless.to_string())?;
        }
        own.document.by_counts = measured.is_some();
        Ok(own)
    }

    /// Adds the hooks and counters of paths and loops, as wanted.
    fn follow(
        &mut self,
        image: &OpenImage,
        function: &Function,
        inside: &Inside,
        (wanted, measured): (Wanted, Option<&[u64]>),
    ) -> Result<(), Pathless> {
        let code = (&inside.flow, &inside.graph);
        let followed = Followed::of(image.image(), image.context(), function, code)?;
        if wanted.paths {
            if self.document.edges.is_empty() {
                let segments = (&followed.segments, &followed.blocks[..]);
                self.document = document(segments, &[], inside);
            }
            let paths = followed.paths(measured)?;
            let traffic = Traffic {
                segments: &followed.segments,
                edges: &paths.edges,
                measured,
            };
            self.add_paths(image, inside, &paths, traffic);
        }
        if wanted.trips {
            self.add_trips(&followed.trips()?, inside);
        }
        Ok(())
    }

    /// Adds the hooks and counters of loops. They do not run from copies.
    fn add_trips(&mut self, trips: &TripCounting, inside: &Inside) {
        let first = self.document.counters();
        let loops = inside.loops.loops();
        let counters = trips.counters.iter().filter_map(|&(header, number)| {
            let of = loops.iter().position(|own| own.header == header)?;
            Some((of as u32, first + number))
        });
        self.document.trips = Some(counters.collect());
        // Without loops, the function runs as if only its edges were counted.
        if !trips.hooks.is_empty() {
            self.regions.clear();
        }
        self.add_steps(&trips.hooks, first);
    }

    /// Adds hooks whose counters begin at number `first`. They run after those of paths.
    fn add_steps(&mut self, hooks: &[(Svma, PathStep)], first: u32) {
        let before = self.hooks.len() as u32;
        let hooks = hooks.iter().map(|&(at, mut step)| {
            step.first += first;
            step.number += before;
            ProbePoint {
                at,
                effect: Effect::Path(step),
            }
        });
        self.hooks.extend(hooks);
    }

    /// Adds the hooks and counters of paths. Loops run from copies if the edges are not counted.
    fn add_paths(
        &mut self,
        image: &OpenImage,
        inside: &Inside,
        paths: &PathCounting,
        traffic: Traffic<'_>,
    ) {
        self.document.paths = Some(PathsDoc {
            paths: paths.paths,
            hashed: paths.paths > PathCounting::MOST_COUNTED,
            back: paths.back.iter().map(|edge| edge.0).collect(),
            into_loops: paths.into_loops.iter().map(|edge| edge.0).collect(),
        });
        let first = self.document.first_of_paths();
        let are_alone = self.hooks.is_empty();
        self.add_steps(&paths.hooks, first);
        self.edges.extend(paths.edges.iter().map(|edge| edge.0));
        self.calls.clone_from(&paths.calls);
        self.regions.clear();
        if are_alone {
            let headers = paths.headers.iter().map(|&header| {
                let mut header = header;
                header.first += first;
                header
            });
            let headers: Vec<PathHeader> = headers.collect();
            let steps = self.hooks.iter().filter_map(|hook| match hook.effect {
                Effect::Path(step) => Some((hook.at, step)),
                _ => None,
            });
            let steps: Vec<_> = steps.collect();
            let of = (image.image(), image.context(), inside);
            let regions = Region::of_paths(of, (&steps, &headers), traffic);
            self.regions = regions.into_iter().map(Arc::new).collect();
        }
    }
}

impl Counted {
    /// How often the hooks outside of copies run, and the ways into copies, if the edges are taken
    /// so often.
    pub(super) fn runs(&self, transfers: &[u64]) -> u64 {
        let sum = |runs: &mut dyn Iterator<Item = u64>| runs.fold(0, u64::saturating_add);
        let transfers = |edge: u32| transfers.get(edge as usize).copied().unwrap_or(0);
        let entries =
            |region: &Arc<Region>| sum(&mut region.entering.iter().map(|edge| transfers(edge.0)));
        let regions: Vec<_> = self.regions.iter().map(|r| (r, entries(r))).collect();
        let hooks = self.hooks.iter().zip(&self.edges).map(|(hook, &edge)| {
            let mut own = regions.iter();
            match own.find(|(region, _)| region.index_of(hook.at).is_some()) {
                Some((region, _)) if region.has_all_of(hook.at) => 0,
                // After the copy was left, until control enters it again.
                Some((_, entries)) => transfers(edge).min(*entries),
                None => transfers(edge),
            }
        });
        let enter = regions.iter().map(|(_, entries)| *entries);
        sum(&mut hooks.chain(enter))
    }

    /// The hooks if these regions run from copies: the ways into the copies, and the counters
    /// outside of them.
    pub(super) fn hooks_beside(&self, regions: &[Arc<Region>]) -> Vec<ProbePoint> {
        let is_outside = |hook: &&ProbePoint| {
            let mut regions = regions.iter();
            !regions.any(|region| region.has_all_of(hook.at))
        };
        let outside = self.hooks.iter().filter(is_outside).copied();
        let enter = regions.iter().zip(0..).flat_map(|(region, number)| {
            region.headers.iter().map(move |header| ProbePoint {
                at: header.at,
                effect: Effect::Enter(number),
            })
        });
        outside.chain(enter).collect()
    }
}

fn regions(
    image: &OpenImage,
    inside: &Inside,
    counting: &Counting,
    measured: Option<&[u64]>,
) -> Vec<Arc<Region>> {
    let edges: Vec<EdgeId> = counting.counters.iter().map(|count| count.edge).collect();
    let traffic = Traffic {
        segments: &counting.segments,
        edges: &edges,
        measured,
    };
    let of = (image.image(), image.context(), inside);
    let regions = Region::of_edges(of, counting, traffic);
    regions.into_iter().map(Arc::new).collect()
}

fn hooks(counting: &Counting) -> Vec<ProbePoint> {
    let hooks = counting.counters.iter().map(|count| ProbePoint {
        at: count.at,
        effect: Effect::Count(count.counter),
    });
    hooks.collect()
}

/// The entry of the document for a graph, without counters.
fn document(
    (segments, blocks_of): (&Graph, &[BlockId]),
    hubs: &[Svma],
    inside: &Inside,
) -> InsideDoc {
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
    let edges = segments.edges().iter();
    let blocks = inside.graph.blocks().iter().map(|block| &block.range);
    let blocks = blocks.map(|range| (range.start.0, range.end.0 - range.start.0));
    let hubs = hubs.iter().map(|at| (at.0, 0));
    InsideDoc {
        blocks: blocks.chain(hubs).collect(),
        segments: blocks_of.iter().map(|block| block.0).collect(),
        edges: edges
            .map(|edge| (number(edge.from), number(edge.to), kind(edge)))
            .collect(),
        loops: loops(segments, blocks_of, inside),
        ..InsideDoc::default()
    }
}

/// The loops of the document. How often control goes back to a header through a hub is not known,
/// so such loops are left out.
fn loops(
    segments: &Graph,
    blocks_of: &[BlockId],
    inside: &Inside,
) -> Vec<(u32, Option<u32>, Vec<u32>)> {
    let Inside { graph, loops, .. } = inside;
    let is_hub = |node: Node| {
        let segment = node.block();
        segment.is_some_and(|id| blocks_of[id.index()].index() >= graph.blocks().len())
    };
    let to_hubs = segments.edges().iter().filter(|edge| is_hub(edge.to));
    let to_hubs = to_hubs.filter_map(|edge| Some(blocks_of[edge.from.block()?.index()]));
    let to_hubs: BTreeSet<BlockId> = to_hubs.collect();
    let all = loops.loops();
    let sources = |of: &Loop| -> Vec<BlockId> {
        let back = of.back_edges.iter();
        back.filter_map(|&edge| graph.edge(edge).from.block())
            .collect()
    };
    let is_known = |of: &Loop| sources(of).iter().all(|source| !to_hubs.contains(source));
    let known: Vec<u32> = (0..)
        .zip(all)
        .filter(|(_, of)| is_known(of))
        .map(|(id, _)| id)
        .collect();
    let number_of = |LoopId(id): LoopId| known.binary_search(&id).ok().map(|number| number as u32);
    let kept = known.iter().map(|&id| {
        let of = &all[id as usize];
        let around = std::iter::successors(of.parent, |id| all[id.index()].parent);
        let parent = around.into_iter().find_map(number_of);
        let sources = sources(of).into_iter().map(|BlockId(number)| number);
        (of.header.0, parent, sources.collect())
    });
    kept.collect()
}
