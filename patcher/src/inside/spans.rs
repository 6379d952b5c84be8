//! Spans: parts of an activation that are timed by themselves. They begin and end inside the
//! function.
//!
//! A span of a loop begins where control enters the loop, and ends where control leaves it. If an
//! exception leaves the loop and is caught in the same function, the span ends at the landing pad.
//! A handler that leads back into the loop is a part of it.
//!
//! A span of an [inlined copy](super::InlinedCopy) begins where control enters its body, and ends
//! where control leaves it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::addr::Svma;
use crate::flow::{Flow, FrameBefore, ModuleContext, frames_before};
use crate::function::Function;
use crate::image::Image;

use super::bodies::Segments;
use super::counter::Transfer;
use super::counting::{NoPlace, are_comparable, divided, placed};
use super::divided::{borders, cut};
use super::function::Inside;
use super::graph::{BlockId, Edge, EdgeId, EdgeKind, Graph, Node};
use super::inlined::{Bodiless, Body, InlinedCopy};
use super::loops::{LoopId, Loops};
use super::place::Place;

/// One action of a hook: it opens or closes a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanStep {
    /// Hooks of one function at the same instruction run in the order of these numbers.
    pub order: u32,
    /// The transfers of control that run the hook.
    pub transfer: Transfer,
    /// True if the span begins, false if it ends.
    pub begins: bool,
    /// The stub's argument.
    pub number: u32,
}

/// The hooks of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The frame of the function, which all hooks find at the same place.
    pub frame: FrameBefore,
    /// The address of each hook's instruction, and the action. The stub's argument is 0.
    pub hooks: Vec<(Svma, SpanStep)>,
}

/// A reason why a span cannot be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spanless {
    /// A way in or out has no place for a hook.
    NoPlace(NoPlace),
    /// The frame is not known at the instruction at this address.
    UnknownFrame(Svma),
    /// The frame is elsewhere at the instruction at this address than where the span begins.
    OtherFrame(Svma),
    /// Control never enters it, as far as known.
    NeverBegins,
    /// With the handlers of exceptions, it is a part of another loop.
    OtherLoop,
    /// The handler at this address belongs to calls in the loop and outside of it.
    SharedHandler(Svma),
    /// It is an inlined copy without a body.
    Bodiless(Bodiless),
    /// It shares instructions with another copy, of which this is the first one.
    Overlaps(Svma),
}

/// The span of an inlined copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedSpan {
    /// The hooks.
    pub span: Span,
    /// The address of the first instruction of the body.
    pub entry: Svma,
    /// The number of instructions of other code in the body.
    pub gaps: usize,
    /// The number of instructions of the copy that are outside of the body.
    pub outside: usize,
    /// The starts of the basic blocks that begin in the body.
    pub blocks: Vec<Svma>,
}

/// Sets of segments, each measured by a span.
struct Sets<'a> {
    /// The number of sets, including those that are not measured.
    count: usize,
    /// The sets, each before those that it contains.
    nested: Vec<usize>,
    contains: &'a dyn Fn(usize, BlockId) -> bool,
}

/// A hook of a span, before the frames are known.
struct Placed {
    of: usize,
    place: Place,
    transfer: Transfer,
    begins: bool,
}

impl Span {
    /// The span of each loop of a function, in the order of the loops.
    pub fn of_loops(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        function: &Function,
        inside: &Inside,
    ) -> Vec<Result<Self, Spanless>> {
        let (segments, blocks) = divided(&inside.flow, &inside.graph);
        let (with_exceptions, thrown) = with_exceptions(image, &inside.flow, &segments);
        let loops = Loops::of(&with_exceptions);
        let of_block = |block: BlockId| blocks[block.index()];
        let own = inside.loops.loops().iter().map(|of| {
            let mut all = loops.loops().iter();
            all.position(|l| of_block(l.header) == of.header)
        });
        let own: Vec<Option<usize>> = own.collect();
        let mut nested: Vec<usize> = (0..loops.loops().len()).collect();
        nested.sort_by_key(|&of| loops.loops()[of].depth);
        let sets = Sets {
            count: nested.len(),
            nested,
            contains: &|of, block| loops.contains(LoopId(of as u32), block),
        };
        let spans = Self::of_sets((image, context, function), &segments, &sets, &thrown);
        let spans = own
            .into_iter()
            .map(|of| spans[of.ok_or(Spanless::OtherLoop)?].clone());
        spans.collect()
    }

    /// The spans of inlined copies in a function, in their order. A copy must precede those in it.
    pub fn of_copies(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        function: &Function,
        inside: &Inside,
        copies: &[InlinedCopy],
    ) -> Vec<Result<InlinedSpan, Spanless>> {
        let (segments, blocks) = divided(&inside.flow, &inside.graph);
        let found = copies.iter().map(|copy| borders(&inside.flow, copy));
        let found: Vec<Result<Vec<Svma>, Bodiless>> = found.collect();
        let all = found.iter().flatten().flatten().copied().collect();
        let (segments, whole) = cut(&inside.flow, &segments, &all);
        let blocks: Vec<BlockId> = whole.iter().map(|of| blocks[of.index()]).collect();
        let (with_exceptions, thrown) = with_exceptions(image, &inside.flow, &segments);
        let of_copies = Segments {
            flow: &inside.flow,
            graph: &with_exceptions,
            blocks: &blocks,
            whole: &inside.graph,
        };
        let bodies = copies.iter().zip(&found).map(|(copy, found)| {
            found.as_ref().map_err(|why| *why)?;
            of_copies.body(copy)
        });
        let bodies: Vec<Result<Body, Bodiless>> = bodies.collect();
        let shared = of_copies.shared(copies, &bodies).into_iter();
        let bodies = bodies.into_iter().zip(shared);
        let bodies = bodies.map(|(body, shared)| shared.map_or(body, Err));
        let bodies: Vec<Result<Body, Bodiless>> = bodies.collect();
        let overlaps = overlaps(&bodies);
        let is_timed = |of: &usize| bodies[*of].is_ok() && overlaps[*of].is_none();
        let size = |of: usize| bodies[of].as_ref().map_or(0, |body| body.segments.len());
        let mut nested: Vec<usize> = (0..copies.len()).filter(is_timed).collect();
        nested.sort_by_key(|&of| std::cmp::Reverse(size(of)));
        let sets = Sets {
            count: copies.len(),
            nested,
            contains: &|of, block| {
                let body = bodies[of].as_ref();
                body.is_ok_and(|body| body.segments.contains(&block))
            },
        };
        let spans = Self::of_sets((image, context, function), &segments, &sets, &thrown);
        let each = spans.into_iter().zip(&bodies).zip(&overlaps);
        let each = each.map(|((span, body), overlap)| {
            let body = body.as_ref().map_err(|why| Spanless::Bodiless(*why))?;
            if let Some(at) = overlap {
                return Err(Spanless::Overlaps(*at));
            }
            let starts = body.segments.iter().map(|&id| segments.block(id));
            let is_start = |start: &Svma| {
                let mut all = inside.graph.blocks().iter();
                all.any(|block| block.range.start == *start)
            };
            let starts = starts.filter(|block| !block.insns.is_empty());
            let blocks = starts.map(|block| block.range.start).filter(is_start);
            Ok(InlinedSpan {
                span: span?,
                entry: body.entry,
                gaps: body.gaps,
                outside: body.outside,
                blocks: blocks.collect(),
            })
        });
        each.collect()
    }

    /// The span of each set. One that is not measured never begins.
    fn of_sets(
        (image, context, function): (&Image<'_>, &ModuleContext<'_>, &Function),
        segments: &Graph,
        sets: &Sets<'_>,
        thrown: &[(BlockId, BlockId)],
    ) -> Vec<Result<Self, Spanless>> {
        let (placed, refused) = hooks(segments, sets, thrown);
        let at: Vec<Svma> = placed.iter().map(|hook| hook.place.at()).collect();
        let frames = frames_before(image, context, function, &at);
        let spans = (0..sets.count).map(|of| {
            let why = refused.iter().find(|(refused, _)| *refused == of);
            if let Some((_, why)) = why {
                return Err(*why);
            }
            let hooks = placed.iter().zip(&frames).zip(0..);
            Self::of_hooks(hooks.filter(|((hook, _), _)| hook.of == of))
        });
        spans.collect()
    }

    fn of_hooks<'a>(
        hooks: impl Iterator<Item = ((&'a Placed, &'a Option<FrameBefore>), u32)>,
    ) -> Result<Self, Spanless> {
        let mut begin: Option<FrameBefore> = None;
        let mut others = Vec::new();
        let mut steps = Vec::new();
        for ((hook, frame), order) in hooks {
            let at = hook.place.at();
            let frame = frame.ok_or(Spanless::UnknownFrame(at))?;
            let step = SpanStep {
                order,
                transfer: hook.transfer,
                begins: hook.begins,
                number: 0,
            };
            steps.push((at, step));
            if !hook.begins {
                others.push((at, frame));
                continue;
            }
            match &mut begin {
                None => begin = Some(frame),
                Some(known) if has_same_registers(known, &frame) => {
                    if known.others != frame.others {
                        known.others = None;
                    }
                }
                Some(_) => return Err(Spanless::OtherFrame(at)),
            }
        }
        let mut frame = begin.ok_or(Spanless::NeverBegins)?;
        for (at, end) in others {
            if !has_same_registers(&frame, &end) {
                return Err(Spanless::OtherFrame(at));
            }
            if frame.others != end.others {
                frame.others = None;
            }
        }
        Ok(Self {
            frame,
            hooks: steps,
        })
    }
}

/// The segments with an edge from each call to the landing pad at which its exceptions arrive,
/// instead of an edge from outside. So a loop contains the handlers of the exceptions in it, if
/// these lead back into it. With the call and the landing pad of each of these edges.
fn with_exceptions(
    image: &Image<'_>,
    flow: &Flow,
    segments: &Graph,
) -> (Graph, Vec<(BlockId, BlockId)>) {
    let mut thrown = Vec::new();
    let fdes = flow.ranges.iter().filter_map(|r| image.fde(r.start));
    let sites: Vec<_> = fdes.flat_map(|fde| image.exception_sites(&fde)).collect();
    let mut starts: HashMap<Svma, BlockId> = HashMap::new();
    for id in segments.block_ids() {
        // Control arrives at the first segment of a block.
        starts.entry(segments.block(id).range.start).or_insert(id);
    }
    let pad_of = |id: BlockId| {
        let last = segments.block(id).last;
        let site = sites.iter().find(|(range, _)| range.contains(&last));
        site.and_then(|(_, pad)| starts.get(pad)).copied()
    };
    let arrival = |to: BlockId| segments.arriving(Node::Block(to)).iter().copied();
    let mut edges: Vec<Edge> = segments.edges().to_vec();
    let mut removed = BTreeSet::new();
    for id in segments.edge_ids() {
        let edge = segments.edge(id);
        let site = edge.from.block().filter(|_| edge.kind == EdgeKind::Left);
        let Some((from, pad)) = site.and_then(|from| Some((from, pad_of(from)?))) else {
            continue;
        };
        thrown.push((from, pad));
        edges.push(Edge {
            from: Node::Block(from),
            to: Node::Block(pad),
            kind: EdgeKind::Arrival,
        });
        let outside = arrival(pad).find(|&id| segments.edge(id).from == Node::Entry);
        removed.extend(outside);
    }
    let mut number = 0;
    edges.retain(|_| {
        number += 1;
        !removed.contains(&EdgeId(number - 1))
    });
    (Graph::new(segments.blocks().to_vec(), edges), thrown)
}

/// True if the return address is at the same distance from the same register, and the caller's
/// frame pointer at the same place.
fn has_same_registers(a: &FrameBefore, b: &FrameBefore) -> bool {
    let is_same_frame = a.base == b.base && a.frame.cfa == b.frame.cfa;
    is_same_frame && a.frame.caller_frame_pointer == b.frame.caller_frame_pointer
}

/// For each body, the address of the first segment that it shares with another body, unless one of
/// them contains the other. `None` if there is none.
fn overlaps(bodies: &[Result<Body, Bodiless>]) -> Vec<Option<Svma>> {
    let entries = bodies.iter().enumerate().map(|(of, body)| {
        let body = body.as_ref().ok()?;
        let others = bodies.iter().enumerate().filter(|(other, _)| *other != of);
        let mut others = others.filter_map(|(_, other)| other.as_ref().ok());
        let other = others.find(|other| {
            let (a, b) = (&body.segments, &other.segments);
            !a.is_disjoint(b) && !a.is_subset(b) && !b.is_subset(a)
        })?;
        Some(other.entry)
    });
    entries.collect()
}

/// The hooks of all sets in the order in which they run at the same instruction, and the sets that
/// cannot be timed. `thrown` are the calls whose exceptions arrive at a landing pad, with the pad.
fn hooks(
    segments: &Graph,
    sets: &Sets<'_>,
    thrown: &[(BlockId, BlockId)],
) -> (Vec<Placed>, Vec<(usize, Spanless)>) {
    let is_in = |of: usize, node: Node| {
        let block = node.block();
        block.is_some_and(|block| (sets.contains)(of, block))
    };
    let nested = &sets.nested;
    let (mut placed_hooks, mut refused) = (Vec::new(), Vec::new());
    let mut add =
        |of: usize, edge: EdgeId, begins: bool, is_needed: bool| match placed(segments, edge) {
            Ok((place, transfer)) => placed_hooks.push(Placed {
                of,
                place,
                transfer,
                begins,
            }),
            Err(no_place) if is_needed => refused.push((of, Spanless::NoPlace(no_place))),
            Err(_) => {}
        };
    for id in segments.edge_ids() {
        let edge = segments.edge(id);
        match edge.kind {
            EdgeKind::Left => continue,
            // An exception may have left any loop that does not contain the landing pad. It may
            // arrive inside a loop, which goes on then.
            EdgeKind::Arrival => {
                for &of in nested.iter().rev().filter(|&&of| !is_in(of, edge.to)) {
                    let leaves = |&(call, pad): &(BlockId, BlockId)| {
                        Node::Block(pad) == edge.to && is_in(of, Node::Block(call))
                    };
                    add(of, id, false, thrown.iter().any(leaves));
                }
                continue;
            }
            _ => {}
        }
        for &of in nested.iter().rev() {
            if is_in(of, edge.from) && !is_in(of, edge.to) {
                add(of, id, false, true);
            }
        }
        for &of in nested {
            if !is_in(of, edge.from) && is_in(of, edge.to) {
                add(of, id, true, true);
            }
        }
    }
    for &(call, pad) in thrown {
        let enters = |&of: &usize| !is_in(of, Node::Block(call)) && is_in(of, Node::Block(pad));
        let at = segments.block(pad).range.start;
        let entered = nested.iter().copied().filter(enters);
        refused.extend(entered.map(|of| (of, Spanless::SharedHandler(at))));
    }
    for of in 0..sets.count {
        let own = placed_hooks.iter().filter(|hook| hook.of == of);
        let own = own.map(|hook| (hook.place.at(), hook.transfer));
        if let Err(no_place) = are_comparable(own) {
            refused.push((of, Spanless::NoPlace(no_place)));
        }
    }
    placed_hooks.sort_by_key(|hook| {
        let departs = !matches!(hook.place, Place::Start(..));
        (hook.place.at(), departs, hook.transfer)
    });
    (placed_hooks, refused)
}

impl fmt::Display for Spanless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPlace(no_place) => no_place.fmt(f),
            Self::UnknownFrame(at) => write!(f, "the frame at {at} is not known"),
            Self::OtherFrame(at) => write!(f, "the frame at {at} is not where it is at its start"),
            Self::NeverBegins => f.write_str("no way into it is known"),
            Self::OtherLoop => {
                f.write_str("a handler of exceptions makes it a part of another loop")
            }
            Self::SharedHandler(at) => {
                write!(
                    f,
                    "the exception handler at {at} is also that of calls outside of it"
                )
            }
            Self::Bodiless(why) => why.fmt(f),
            Self::Overlaps(at) => {
                write!(f, "its code is mixed with that of the copy at {at}")
            }
        }
    }
}

impl std::error::Error for Spanless {}
