//! Spans: parts of an activation that are timed by themselves. They begin and end inside the
//! function.
//!
//! A span of a loop begins where control enters the loop, and ends where control leaves it. If an
//! exception leaves the loop and is caught in the same function, the span ends at the landing pad.
//! A handler that leads back into the loop is a part of it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::addr::Svma;
use crate::flow::{Flow, FrameBefore, ModuleContext, frames_before};
use crate::function::Function;
use crate::image::Image;

use super::counter::Transfer;
use super::counting::{NoPlace, divided, placed};
use super::function::Inside;
use super::graph::{BlockId, Edge, EdgeId, EdgeKind, Graph, Node};
use super::loops::{LoopId, Loops};
use super::place::Place;

/// What a hook of a span does.
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
}

/// A hook of a loop, before the frames are known.
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
        let loops = Loops::of(&with_exceptions(image, &inside.flow, &segments));
        let of_block = |block: BlockId| blocks[block.index()];
        let own = inside.loops.loops().iter().map(|of| {
            let mut all = loops.loops().iter();
            all.position(|l| of_block(l.header) == of.header)
        });
        let own: Vec<Option<usize>> = own.collect();
        let (placed, refused) = hooks(&segments, &loops);
        let at: Vec<Svma> = placed.iter().map(|hook| hook.place.at()).collect();
        let frames = frames_before(image, context, function, &at);
        let spans = own.into_iter().map(|of| {
            let of = of.ok_or(Spanless::NeverBegins)?;
            let why = refused.iter().find(|(refused, _)| *refused == of);
            if let Some((_, no_place)) = why {
                return Err(Spanless::NoPlace(*no_place));
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
        let frame = begin.ok_or(Spanless::NeverBegins)?;
        let other = others.iter().find(|(_, end)| !is_same_frame(&frame, end));
        match other {
            Some((at, _)) => Err(Spanless::OtherFrame(*at)),
            None => Ok(Self {
                frame,
                hooks: steps,
            }),
        }
    }
}

/// The segments with an edge from each call to the landing pad at which its exceptions arrive,
/// instead of an edge from outside. So a loop contains the handlers of the exceptions in it, if
/// these lead back into it.
fn with_exceptions(image: &Image<'_>, flow: &Flow, segments: &Graph) -> Graph {
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
    Graph::new(segments.blocks().to_vec(), edges)
}

/// True if the return address is at the same distance from the same register.
fn is_same_frame(a: &FrameBefore, b: &FrameBefore) -> bool {
    a.base == b.base && a.frame.cfa == b.frame.cfa
}

/// True if also the caller's frame pointer is at the same place.
fn has_same_registers(a: &FrameBefore, b: &FrameBefore) -> bool {
    is_same_frame(a, b) && a.frame.caller_frame_pointer == b.frame.caller_frame_pointer
}

/// The hooks of all loops in the order in which they run at the same instruction, and the loops
/// that have an edge without a place.
fn hooks(segments: &Graph, loops: &Loops) -> (Vec<Placed>, Vec<(usize, NoPlace)>) {
    let is_in = |of: usize, node: Node| {
        let block = node.block();
        block.is_some_and(|block| loops.contains(LoopId(of as u32), block))
    };
    // From the outermost to the innermost.
    let mut nested: Vec<usize> = (0..loops.loops().len()).collect();
    nested.sort_by_key(|&of| loops.loops()[of].depth);
    let (mut placed_hooks, mut refused) = (Vec::new(), Vec::new());
    let mut add =
        |of: usize, edge: EdgeId, begins: bool, is_needed: bool| match placed(segments, edge) {
            Ok((place, transfer)) => placed_hooks.push(Placed {
                of,
                place,
                transfer,
                begins,
            }),
            Err(no_place) if is_needed => refused.push((of, no_place)),
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
                    add(of, id, false, false);
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
        for &of in &nested {
            if !is_in(of, edge.from) && is_in(of, edge.to) {
                add(of, id, true, true);
            }
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
        }
    }
}

impl std::error::Error for Spanless {}
