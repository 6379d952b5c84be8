//! The counters that determine the counts of all edges of a function, and their places.
//!
//! An activation may leave its function at any call: by an exception, by `longjmp`, or as its
//! thread ends. It may also have been inside a call when the counting began. So each block is
//! divided into segments, which end after each call. A segment that ends with a call has another
//! edge to the virtual exit. Its count is the number of activations that left there, minus those
//! that were there at first. With these edges, the counts of all others are exact although
//! activations are left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use crate::addr::Svma;
use crate::flow::Flow;
use crate::isa::Insn;

use super::chords::Chords;
use super::counter::{Counter, Transfer};
use super::graph::{Block, BlockEnd, BlockId, Edge, EdgeId, EdgeKind, Graph, Node};
use super::hub::{Joined, joined};
use super::liveness::{Free, Liveness};
use super::loops::Loops;
use super::place::Place;

/// The counters of one function.
#[derive(Clone, Debug)]
pub struct Counting {
    /// The segments, as blocks. An edge of kind [`EdgeKind::Left`] leads from each call.
    pub segments: Graph,
    /// For each segment, the block that it is a part of.
    /// Those of hubs have numbers after those of the function's blocks.
    pub blocks: Vec<BlockId>,
    /// The hubs of jumps to many labels: for each, the address of one of its jumps.
    pub hubs: Vec<Svma>,
    /// The counters. They are numbered in this order.
    pub counters: Vec<Count>,
}

/// A counter with the place of its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The edge of the segments that it counts.
    pub edge: EdgeId,
    /// The address of the instruction with the hook.
    pub at: Svma,
    /// The counter.
    pub counter: Counter,
}

/// An edge must be counted and has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NoPlace {
    /// The start of the block at which the edge arrives; `None` for an edge out of the function.
    pub to: Option<Svma>,
}

impl Counting {
    /// Chooses the counters of a function.
    ///
    /// `measured` has a count for each edge of the segments, if they are known ([`Chords::of`]).
    ///
    /// # Errors
    /// No instruction is executed for an edge alone that must be counted.
    pub fn of(flow: &Flow, graph: &Graph, measured: Option<&[u64]>) -> Result<Self, NoPlace> {
        let (segments, blocks) = divided(flow, graph);
        let live = Liveness::of(flow, graph);
        let free = |at: Svma| live.free_before(flow, graph, at);
        let own = Self::at_places(flow, (&segments, &free), measured);
        let (counters, joined) = match own {
            Ok(counters) => (counters, None),
            Err(no_place) => {
                let own = (&blocks[..], graph.blocks().len());
                let joined = joined(&segments, own, MOST_COMPARED).ok_or(no_place)?;
                let counters = Self::at_places(flow, (&joined.segments, &free), measured)?;
                (counters, Some(joined))
            }
        };
        let joined = joined.unwrap_or(Joined {
            segments,
            blocks,
            hubs: Vec::new(),
        });
        let Joined {
            segments,
            blocks,
            hubs,
        } = joined;
        Ok(Self {
            segments,
            blocks,
            hubs,
            counters,
        })
    }

    /// The counters of these segments.
    fn at_places(
        flow: &Flow,
        (segments, free): (&Graph, &impl Fn(Svma) -> Free),
        measured: Option<&[u64]>,
    ) -> Result<Vec<Count>, NoPlace> {
        let loops = Loops::of(segments);
        let chords = Chords::of(segments, &loops, measured);
        let counted = chords.edges().iter().zip(0..);
        let counters = counted.map(|(&edge, number)| {
            let place = placed(segments, edge)?;
            Ok(count(flow, segments, (edge, number), place, free))
        });
        let counters = counters.collect::<Result<Vec<Count>, NoPlace>>()?;
        are_comparable(counters.iter().map(|of| (of.at, of.counter.transfer)))?;
        Ok(counters)
    }
}

/// The maximum number of addresses with which the target of a jump through a table is compared.
const MOST_COMPARED: usize = 32;

/// Fails if the target of a jump through a table would be compared too often for these hooks.
pub(super) fn are_comparable(hooks: impl Iterator<Item = (Svma, Transfer)>) -> Result<(), NoPlace> {
    let mut compared: BTreeMap<Svma, BTreeSet<Svma>> = BTreeMap::new();
    for (at, transfer) in hooks {
        if let Transfer::LeadsTo(to) = transfer {
            let targets = compared.entry(at).or_default();
            targets.insert(to);
            if targets.len() > MOST_COMPARED {
                return Err(NoPlace { to: Some(to) });
            }
        }
    }
    Ok(())
}

/// The place of a counter, and the transfers that are counted there.
pub(super) fn placed(graph: &Graph, edge: EdgeId) -> Result<(Place, Transfer), NoPlace> {
    let Edge { to, kind, .. } = graph.edge(edge);
    let missing = NoPlace {
        to: to.block().map(|block| graph.block(block).range.start),
    };
    let place = Place::of(graph, edge).ok_or(missing)?;
    match (place, kind) {
        (Place::Start(..) | Place::End(..), _) => Ok((place, Transfer::Reached)),
        (Place::Branch(..), EdgeKind::Taken) => Ok((place, Transfer::Taken)),
        (Place::Branch(..), EdgeKind::FallThrough) => Ok((place, Transfer::NotTaken)),
        (Place::Branch(..), EdgeKind::Table) => {
            let to = to.block().ok_or(missing)?;
            let to = graph.block(to).range.start;
            Ok((place, Transfer::LeadsTo(to)))
        }
        (Place::Branch(..), _) => Err(missing),
    }
}

/// The counter of `edge` at `place`. `free` gives the registers and flags that are free before an
/// instruction.
fn count(
    flow: &Flow,
    graph: &Graph,
    (edge, number): (EdgeId, u32),
    (place, transfer): (Place, Transfer),
    free: impl Fn(Svma) -> Free,
) -> Count {
    let (at, free) = at_free_place(flow, graph, (edge, place), free);
    Count {
        edge,
        at,
        counter: Counter {
            number,
            transfer,
            free,
        },
    }
}

/// The instruction at which the hook of an edge with this place is cheapest, and what the hook may
/// overwrite.
pub(super) fn at_free_place(
    flow: &Flow,
    graph: &Graph,
    (edge, place): (EdgeId, Place),
    free: impl Fn(Svma) -> Free,
) -> (Svma, Free) {
    match place {
        Place::Start(block, at) | Place::End(block, at) => {
            at_free_flags(flow, graph.block(block), at, free)
        }
        Place::Branch(_, at) if graph.edge(edge).kind == EdgeKind::Table => (at, free(at)),
        // The hook runs between the branch and its target.
        Place::Branch(_, at) => {
            let next = graph.edge(edge).to.block();
            let next = next.map(|block| graph.block(block).range.start);
            (at, next.map(free).unwrap_or_default())
        }
    }
}

/// The instruction at `at`, or the first one of its block before which the flags are free. With
/// what is free before it. All instructions of a block run equally often.
fn at_free_flags(
    flow: &Flow,
    block: &Block,
    at: Svma,
    free: impl Fn(Svma) -> Free,
) -> (Svma, Free) {
    let found = free(at);
    if found.flags {
        return (at, found);
    }
    let insns = flow.insns[block.insns.clone()].iter();
    let others = insns.map(|insn| Svma(insn.at()));
    let mut others = others.filter(|&other| block.first <= other && other <= block.last);
    let other = others.find_map(|other| Some((other, free(other))).filter(|(_, f)| f.flags));
    other.unwrap_or((at, found))
}

/// The graph of the segments of `graph`, and the block of each segment.
///
/// A block at which several edges arrive begins with an empty segment. So its arrivals can be
/// counted together, at its first instruction, where they cannot be counted apart.
pub(super) fn divided(flow: &Flow, graph: &Graph) -> (Graph, Vec<BlockId>) {
    let mut segments = Vec::new();
    let mut blocks = Vec::new();
    // The first segment of each block, and the number of segments.
    let mut first = Vec::new();
    for id in graph.block_ids() {
        let block = graph.block(id);
        first.push(segments.len() as u32);
        if graph.arriving(Node::Block(id)).len() > 1 {
            segments.push(empty(block));
        }
        segments.extend(parts(flow, &block.insns).map(|insns| segment(flow, block, insns)));
        blocks.resize(segments.len(), id);
    }
    first.push(segments.len() as u32);
    let arriving = |edge: Edge| match edge.to {
        Node::Block(block) => Edge {
            to: Node::Block(BlockId(first[block.index()])),
            ..edge
        },
        _ => edge,
    };
    let leaving = |node| graph.leaving(node).iter().map(|&id| graph.edge(id));
    let mut edges: Vec<Edge> = leaving(Node::Entry).map(arriving).collect();
    for (segment, &id) in (0..).zip(&blocks) {
        let from = Node::Block(BlockId(segment));
        if segment + 1 < first[id.index() + 1] {
            edges.push(Edge {
                from,
                to: Node::Block(BlockId(segment + 1)),
                kind: EdgeKind::FallThrough,
            });
        } else if graph.block(id).end != BlockEnd::NoReturn {
            let leaving = leaving(Node::Block(id)).map(arriving);
            edges.extend(leaving.map(|edge| Edge { from, ..edge }));
        }
        let part = &segments[segment as usize];
        let insns = &flow.insns[part.insns.clone()];
        if part.end == BlockEnd::NoReturn || insns.last().is_some_and(Insn::is_call) {
            edges.push(Edge {
                from,
                to: Node::Exit,
                kind: EdgeKind::Left,
            });
        }
    }
    (Graph::new(segments, edges), blocks)
}

/// A segment without instructions before the first one of a block.
fn empty(block: &Block) -> Block {
    Block {
        range: block.range.start..block.range.start,
        insns: block.insns.start..block.insns.start,
        last: block.first,
        end: BlockEnd::FallsThrough,
        ..block.clone()
    }
}

/// The instructions of a block, divided after each call.
fn parts(flow: &Flow, insns: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let inner = insns.start..insns.end - 1;
    let calls = inner.filter(|&index| flow.insns[index].is_call());
    let mut start = insns.start;
    calls
        .map(|index| index + 1)
        .chain([insns.end])
        .map(move |end| {
            let part = start..end;
            start = end;
            part
        })
}

/// A part of a block: these instructions.
pub(super) fn segment(flow: &Flow, block: &Block, insns: Range<usize>) -> Block {
    let (head, last) = (&flow.insns[insns.start], &flow.insns[insns.end - 1]);
    let is_first = insns.start == block.insns.start;
    let is_last = insns.end == block.insns.end;
    Block {
        range: Svma(head.at())..Svma(last.end()),
        first: if is_first {
            block.first
        } else {
            Svma(head.at())
        },
        last: Svma(last.at()),
        end: if is_last {
            block.end
        } else {
            BlockEnd::FallsThrough
        },
        is_certain: flow.insns[insns.clone()]
            .iter()
            .map(Insn::at)
            .all(|at| flow.is_certain(at)),
        insns,
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "no instruction belongs to one of the ways to {to} alone"),
            None => f.write_str("no instruction belongs to one of the ways out of it alone"),
        }
    }
}

impl std::error::Error for NoPlace {}
