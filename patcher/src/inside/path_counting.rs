//! The hooks that count the paths and the trips through loops of a function, and the frames that
//! they find.
//!
//! The sum of the path that an activation is on belongs to that activation. Hooks find it by the
//! canonical frame address, which no two living activations have in common.

use std::collections::BTreeSet;
use std::fmt;

use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext, frames_before};
use crate::function::Function;
use crate::image::Image;
use crate::isa::{Control, Insn, PathRow};

use super::counting::{NoPlace, are_comparable, at_free_place, divided, placed};
use super::cut::Cut;
use super::graph::{BlockId, EdgeId, EdgeKind, Graph, Node};
use super::liveness::Liveness;
use super::loops::{LoopId, Loops};
use super::numbering::{Action, Numbering};
use super::path_step::{CountersKind, PathHeader, PathStep};
use super::place::Place;

/// Functions that return several times for one call: those of C, POSIX and BSD.
const RETURN_TWICE: [&str; 7] = [
    "__sigsetjmp",
    "_setjmp",
    "getcontext",
    "savectx",
    "setjmp",
    "sigsetjmp",
    "vfork",
];

/// The hooks that count the paths of one function.
#[derive(Clone, Debug)]
pub struct PathCounting {
    /// The back edges of the segments, ascending. Paths end at them.
    pub back: Vec<EdgeId>,
    /// The edges into loops, ascending, if paths end there as well.
    pub into_loops: Vec<EdgeId>,
    /// The number of paths.
    pub paths: u64,
    /// The hooks: the address of the instruction, and the action.
    pub hooks: Vec<(Svma, PathStep)>,
    /// For each hook, the edge of the segments whose transfers have the action.
    pub edges: Vec<EdgeId>,
    /// The headers of loops at which the frame is known.
    pub headers: Vec<PathHeader>,
    /// The calls of the function.
    pub calls: Vec<PathCall>,
}

/// A call in which an activation may be on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCall {
    /// The address of the call.
    pub at: Svma,
    /// The return address.
    pub back: Svma,
    /// What has to be added to the sum during the call to get the lowest number of a path from
    /// there. Modulo 2^64.
    pub to_add: u64,
}

/// The hooks that count the trips of the loops of one function: how often the header is executed
/// from an entry of the loop until it is left.
#[derive(Clone, Debug)]
pub struct TripCounting {
    /// The loops whose trips are counted: their headers, as blocks of the function, and their first
    /// counters.
    pub counters: Vec<(BlockId, u32)>,
    /// The hooks: the address of the instruction, and the action.
    pub hooks: Vec<(Svma, PathStep)>,
}

/// A reason why the paths of a function cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pathless {
    /// There are too many paths to number them.
    TooMany,
    /// An edge that begins, changes or ends a path has no place for a hook.
    NoPlace(NoPlace),
    /// The frame is not known at the instruction at this address.
    UnknownFrame(Svma),
    /// A function that is called at this address may return several times, so that the activation
    /// continues on a path that it has already left.
    ReturnsTwice(Svma),
    /// The function is Go's, whose runtime moves stacks.
    StackMoves,
}

impl PathCounting {
    /// The number of paths up to which a function is accepted. Numbers of paths and the sums on the
    /// way to them are far from the limit of 64 bits.
    pub const MOST_PATHS: u64 = 1 << 40;

    /// The number of paths up to which each path has a counter of its own. With more, paths also
    /// end where a loop is entered.
    pub const MOST_COUNTED: u64 = 1 << 12;
}

impl TripCounting {
    /// The number of counters of a loop, without those before: one for each power of two.
    pub const COUNTERS: u32 = 64;
}

/// Hooks, each at an instruction, and the edge of each.
type Hooks = (Vec<(Svma, PathStep)>, Vec<EdgeId>);

/// The counters of a path or a loop.
#[derive(Clone, Copy)]
struct Counters {
    first: u32,
    paths: u64,
    kind: CountersKind,
}

/// A function whose activations are told apart by their frame addresses.
pub struct Followed<'a, 'd, 'c> {
    image: &'a Image<'d>,
    context: &'a ModuleContext<'c>,
    function: &'a Function,
    flow: &'a Flow,
    graph: &'a Graph,
    live: Liveness,
    /// The segments, as blocks ([`Counting`](super::Counting)). Paths are paths of segments.
    pub segments: Graph,
    /// For each segment, the block that it is a part of.
    pub blocks: Vec<BlockId>,
    /// The loops of the segments.
    loops: Loops,
}

impl<'a, 'd, 'c> Followed<'a, 'd, 'c> {
    /// Analyzes `function`.
    ///
    /// # Errors
    /// Its activations cannot be told apart.
    pub fn of(
        image: &'a Image<'d>,
        context: &'a ModuleContext<'c>,
        function: &'a Function,
        (flow, graph): (&'a Flow, &'a Graph),
    ) -> Result<Self, Pathless> {
        if flow.is_go() {
            return Err(Pathless::StackMoves);
        }
        if let Some(call) = flow.insns.iter().find(|insn| returns_twice(image, insn)) {
            return Err(Pathless::ReturnsTwice(Svma(call.at())));
        }
        let (segments, blocks) = divided(flow, graph);
        Ok(Self {
            image,
            context,
            function,
            flow,
            graph,
            live: Liveness::of(flow, graph),
            loops: Loops::of(&segments),
            segments,
            blocks,
        })
    }

    /// Chooses the hooks of the paths. `measured` has a count for each edge of the segments, if
    /// they are known ([`Numbering::of`]). The numbers of the paths do not depend on it.
    ///
    /// # Errors
    /// The paths cannot be counted.
    pub fn paths(&self, measured: Option<&[u64]>) -> Result<PathCounting, Pathless> {
        let Self {
            segments, loops, ..
        } = self;
        let (cut, numbering) = self.numbered(measured)?;
        let paths = numbering.paths();
        let own = Counters {
            first: 0,
            paths,
            kind: if paths > PathCounting::MOST_COUNTED {
                CountersKind::Table
            } else {
                CountersKind::Each
            },
        };
        let actions = segments.edge_ids().zip(numbering.actions());
        let actions = actions.filter(|&(edge, action)| {
            segments.edge(edge).kind != EdgeKind::Left && *action != Action::Add(0)
        });
        let actions = actions.map(|(edge, &action)| (edge, action, own));
        let (back, into_loops) = cut.edges().partition(|&edge| loops.is_back(edge));
        let (hooks, edges) = self.hooks(actions)?;
        Ok(PathCounting {
            hooks,
            edges,
            back,
            into_loops,
            headers: self.headers(&numbering, own),
            calls: self.calls(&numbering),
            paths,
        })
    }

    /// Numbers the paths. If there are too many for counters of their own, they end where a loop is
    /// entered, if these edges have places and that is enough. Otherwise that is done only if the
    /// paths could not be counted at all.
    fn numbered(&self, measured: Option<&[u64]>) -> Result<(Cut, Numbering), Pathless> {
        let Self {
            segments, loops, ..
        } = self;
        let of = |cut: Cut| {
            let numbering = Numbering::of(segments, loops, &cut, measured).ok()?;
            Some((cut, numbering)).filter(|(_, n)| n.paths() <= PathCounting::MOST_PATHS)
        };
        let is_enough = |(_, n): &(Cut, Numbering)| n.paths() <= PathCounting::MOST_COUNTED;
        let whole = of(Cut::back(segments, loops));
        if whole.as_ref().is_some_and(is_enough) {
            return whole.ok_or(Pathless::TooMany);
        }
        let cut = Cut::headers(segments, loops);
        let places: Result<Vec<_>, _> = cut.edges().map(|edge| placed(segments, edge)).collect();
        let places = places.map(|all| all.into_iter().map(|(place, of)| (place.at(), of)));
        let have_places = places.is_ok_and(|all| are_comparable(all).is_ok());
        let split = Some(cut).filter(|_| have_places).and_then(of);
        match split {
            Some(split) if is_enough(&split) => Ok(split),
            split => whole.or(split).ok_or(Pathless::TooMany),
        }
    }

    /// The paths at the calls. A segment ends with its call.
    fn calls(&self, numbering: &Numbering) -> Vec<PathCall> {
        let segments = self.segments.block_ids().zip(self.segments.blocks());
        let last = |insns: &std::ops::Range<usize>| self.flow.insns[insns.clone()].last();
        let calls = segments.filter(|(_, segment)| last(&segment.insns).is_some_and(Insn::is_call));
        let calls = calls.map(|(id, segment)| PathCall {
            at: segment.last,
            back: segment.range.end,
            to_add: numbering.to_add(&self.segments, Node::Block(id)).0,
        });
        calls.collect()
    }

    /// The paths at the headers of loops.
    fn headers(&self, numbering: &Numbering, own: Counters) -> Vec<PathHeader> {
        let headers: BTreeSet<BlockId> = self.loops.loops().iter().map(|l| l.header).collect();
        let first = |header: &BlockId| self.graph.block(self.blocks[header.index()]).first;
        let at: Vec<Svma> = headers.iter().map(first).collect();
        let frames = frames_before(self.image, self.context, self.function, &at);
        let known = headers.iter().zip(&at).zip(frames);
        let known = known.filter_map(|((&header, &at), frame)| {
            let to_add = numbering.to_add(&self.segments, Node::Block(header));
            Some(PathHeader {
                at,
                frame: frame?.into(),
                first: own.first,
                paths: own.paths,
                to_add,
            })
        });
        known.collect()
    }

    /// Chooses the hooks of the loops. Loops that control enters elsewhere than at their headers
    /// have none, except if that is an arrival from outside, as at a landing pad: it continues the
    /// trip.
    ///
    /// # Errors
    /// The trips cannot be counted.
    pub fn trips(&self) -> Result<TripCounting, Pathless> {
        let Self {
            segments, loops, ..
        } = self;
        let is_in = |of: usize, node: Node| {
            let block = node.block();
            block.is_some_and(|block| loops.contains(LoopId(of as u32), block))
        };
        // The loops from the outermost to the innermost, with their counters.
        let mut counted: Vec<(usize, Counters)> = Vec::new();
        for (of, own) in loops.loops().iter().enumerate() {
            let header = Node::Block(own.header);
            let mut edges = segments.edges().iter();
            let is_entered_once = edges.all(|edge| {
                let enters = is_in(of, edge.to) && !is_in(of, edge.from);
                !enters || edge.to == header || edge.kind == EdgeKind::Arrival
            });
            if is_entered_once {
                let number = counted.len() as u32;
                let own = Counters {
                    first: number * (PathRow::BEFORE + TripCounting::COUNTERS),
                    paths: u64::MAX,
                    kind: CountersKind::Histogram,
                };
                counted.push((of, own));
            }
        }
        counted.sort_by_key(|&(of, _)| loops.loops()[of].depth);
        let mut actions = Vec::new();
        for id in segments.edge_ids() {
            let edge = segments.edge(id);
            if edge.kind == EdgeKind::Left {
                continue;
            }
            let left = counted.iter().rev();
            let left = left.filter(|(of, _)| is_in(*of, edge.from) && !is_in(*of, edge.to));
            actions.extend(left.map(|&(_, own)| (id, Action::End(0), own)));
            for &(of, own) in &counted {
                let to_header = edge.to == Node::Block(loops.loops()[of].header);
                if to_header && (is_in(of, edge.from) || edge.kind == EdgeKind::Arrival) {
                    actions.push((id, Action::Add(1), own));
                } else if to_header {
                    actions.push((id, Action::Start(1), own));
                }
            }
        }
        let header = |of: usize| self.blocks[loops.loops()[of].header.index()];
        let counters = counted.iter().map(|&(of, own)| (header(of), own.first));
        Ok(TripCounting {
            hooks: self.hooks(actions.into_iter())?.0,
            counters: counters.collect(),
        })
    }

    /// The hooks for these actions on edges of the segments, whose order they keep, and the edge of
    /// each. At the same instruction, those of arrivals come before those of departures.
    fn hooks(
        &self,
        actions: impl Iterator<Item = (EdgeId, Action, Counters)>,
    ) -> Result<Hooks, Pathless> {
        let Self {
            flow,
            graph,
            live,
            segments,
            ..
        } = self;
        let free = |at| live.free_before(flow, graph, at);
        let placed = actions.map(|(edge, action, own)| {
            let (place, transfer) = placed(segments, edge)?;
            let (at, free) = at_free_place(flow, segments, (edge, place), free);
            let departs = !matches!(place, Place::Start(..));
            Ok(((at, departs, transfer), place.at(), free, action, own, edge))
        });
        let mut placed = placed.collect::<Result<Vec<_>, NoPlace>>()?;
        are_comparable(placed.iter().map(|&((at, _, transfer), ..)| (at, transfer)))?;
        placed.sort_by_key(|&(order, ..)| order);
        // A function that replaces its stack leaves other activations. Its frame is known before.
        let both = placed.iter().flat_map(|&((at, ..), place, ..)| [at, place]);
        let both: Vec<Svma> = both.collect();
        let frames = frames_before(self.image, self.context, self.function, &both);
        let (frames, _) = frames.as_chunks::<2>();
        let hooks = placed.iter().zip(frames).zip(0..);
        let hooks = hooks.map(
            |((&((at, _, transfer), place, free, action, own, _), &[frame, at_place]), number)| {
                let frame = frame.ok_or(Pathless::UnknownFrame(at))?;
                at_place.ok_or(Pathless::UnknownFrame(place))?;
                let step = PathStep {
                    number,
                    transfer,
                    action,
                    free,
                    frame: frame.into(),
                    first: own.first,
                    paths: own.paths,
                    counters: own.kind,
                    timed: None,
                };
                Ok((at, step))
            },
        );
        let hooks = hooks.collect::<Result<_, Pathless>>()?;
        Ok((hooks, placed.iter().map(|&(.., edge)| edge).collect()))
    }
}

/// True if the instruction calls a function that may return several times.
fn returns_twice(image: &Image<'_>, call: &Insn) -> bool {
    let is_one = |name: &str| {
        let name = name.split('@').next().unwrap_or_default();
        RETURN_TWICE.contains(&name)
    };
    match call.control() {
        Control::Call if call.is_direct_call() => {
            let callee = Svma(call.target());
            if let Some(name) = image.plt_name(callee) {
                return is_one(name);
            }
            let function = image.functions().function_at(callee);
            function.is_some_and(|function| {
                function.range.start == callee
                    && (is_one(&function.linkage) || function.aliases.iter().any(|a| is_one(a)))
            })
        }
        Control::IndirectCall => {
            let slot = call.named_word();
            let name = slot.and_then(|slot| image.imported_at(Svma(slot)));
            name.is_some_and(is_one)
        }
        _ => false,
    }
}

impl From<NoPlace> for Pathless {
    fn from(no_place: NoPlace) -> Self {
        Self::NoPlace(no_place)
    }
}

impl fmt::Display for Pathless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "it has more than {} paths", PathCounting::MOST_PATHS),
            Self::NoPlace(no_place) => no_place.fmt(f),
            Self::UnknownFrame(at) => write!(f, "its frame at {at} is not known"),
            Self::ReturnsTwice(at) => {
                write!(f, "the function called at {at} may return several times")
            }
            Self::StackMoves => {
                f.write_str("Go moves its stack, by which its paths are told apart")
            }
        }
    }
}

impl std::error::Error for Pathless {}
