//! The hooks that count the paths of a function ([`PathTable`]), and the frames that they find.
//!
//! The sum of the path that an activation is on belongs to that activation. Hooks find it by the
//! canonical frame address, which no two living activations have in common.

use std::fmt;

use crate::addr::Svma;
use crate::flow::{Base, Flow, ModuleContext, frames_before};
use crate::function::Function;
use crate::image::Image;
use crate::isa::{Control, Insn, PathRow};

use super::counter::Transfer;
use super::counting::{NoPlace, divided, placed};
use super::graph::{BlockId, EdgeId, EdgeKind, Graph};
use super::liveness::{Free, Liveness};
use super::loops::Loops;
use super::numbering::{Action, Numbering};
use super::path_table::TooManyPaths;
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
    /// The segments, as blocks ([`Counting`](super::Counting)). Paths are paths of segments.
    pub segments: Graph,
    /// For each segment, the block that it is a part of.
    pub blocks: Vec<BlockId>,
    /// The back edges of the segments, ascending.
    pub back: Vec<EdgeId>,
    /// The number of paths.
    pub paths: u64,
    /// The hooks: the address of the instruction, and the action.
    pub hooks: Vec<(Svma, PathStep)>,
}

/// What a hook of a path does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathStep {
    /// Hooks at the same instruction run in the order of these numbers.
    pub number: u32,
    /// The transfers of control that run the hook.
    pub transfer: Transfer,
    /// The change of the path sum.
    pub action: Action,
    /// The registers and flags that the hook may overwrite.
    pub free: Free,
    /// True if the canonical frame address is relative to the frame pointer; else to the stack
    /// pointer.
    pub by_fp: bool,
    /// The distance of the canonical frame address from that register, in bytes.
    pub cfa: i32,
    /// The number of the function's first counter.
    pub first: u32,
    /// The number of paths.
    pub paths: u64,
    /// True if the counters are a hash table, because there are more paths than counters.
    pub hashed: bool,
}

impl PathStep {
    /// The row for the stub.
    pub(crate) fn row(&self) -> PathRow {
        let (kind, add, start) = match self.action {
            Action::Start(start) => (PathRow::BEGINS, 0, start),
            Action::Add(add) => (PathRow::ADDS, add, 0),
            Action::End(add) => (PathRow::ENDS, add, 0),
            Action::Restart { end, start } => (PathRow::RESTARTS, end, start),
        };
        PathRow {
            kind,
            by_fp: self.by_fp,
            hashed: self.hashed,
            cfa: self.cfa,
            first: self.first,
            paths: self.paths,
            add,
            start,
        }
    }
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

    /// The number of paths up to which each path has a counter of its own.
    pub const MOST_COUNTED: u64 = 1 << 12;

    /// Chooses the hooks of `function`.
    ///
    /// # Errors
    /// The paths cannot be counted.
    pub fn of(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        function: &Function,
        (flow, graph): (&Flow, &Graph),
    ) -> Result<Self, Pathless> {
        if flow.is_go() {
            return Err(Pathless::StackMoves);
        }
        if let Some(call) = flow.insns.iter().find(|insn| returns_twice(image, insn)) {
            return Err(Pathless::ReturnsTwice(Svma(call.at())));
        }
        let (segments, blocks) = divided(flow, graph);
        let loops = Loops::of(&segments);
        let numbering = Numbering::of(&segments, &loops, None)?;
        let paths = numbering.paths();
        if paths > Self::MOST_PATHS {
            return Err(Pathless::TooMany);
        }
        let placed = placed_actions(&segments, &numbering)?;
        let at: Vec<Svma> = placed.iter().map(|(_, place, ..)| place.at()).collect();
        let frames = frames_before(image, context, function, &at);
        let hooks = placed.iter().zip(frames).zip(0..);
        let live = Liveness::of(flow, graph);
        let free = |place: Place, edge: EdgeId| match place {
            Place::Start(_, at) | Place::End(_, at) => live.free_before(flow, graph, at),
            // The hook runs between the branch and its target.
            Place::Branch(..) => {
                let next = segments.edge(edge).to.block();
                let next = next.map(|block| segments.block(block).range.start);
                let free = |at| live.free_before(flow, graph, at);
                next.map(free).unwrap_or_default()
            }
        };
        let hooks = hooks.map(|((&(edge, place, transfer, action), frame), number)| {
            let frame = frame.ok_or(Pathless::UnknownFrame(place.at()))?;
            let step = PathStep {
                number,
                transfer,
                action,
                free: free(place, edge),
                by_fp: frame.base == Base::FramePointer,
                cfa: frame.frame.cfa,
                first: 0,
                paths,
                hashed: paths > Self::MOST_COUNTED,
            };
            Ok((place.at(), step))
        });
        let hooks = hooks.collect::<Result<_, Pathless>>()?;
        let back = segments.edge_ids().filter(|&edge| loops.is_back(edge));
        Ok(Self {
            back: back.collect(),
            segments,
            blocks,
            paths,
            hooks,
        })
    }
}

/// The actions that need hooks, with their places. At the same instruction, that of an arrival
/// comes before that of a departure.
fn placed_actions(
    segments: &Graph,
    numbering: &Numbering,
) -> Result<Vec<(EdgeId, Place, Transfer, Action)>, NoPlace> {
    let edges = segments.edge_ids().zip(numbering.actions());
    let needed = edges.filter(|&(edge, action)| {
        segments.edge(edge).kind != EdgeKind::Left && *action != Action::Add(0)
    });
    let placed = needed.map(|(edge, &action)| {
        let (place, transfer) = placed(segments, edge)?;
        Ok((edge, place, transfer, action))
    });
    let mut placed = placed.collect::<Result<Vec<_>, NoPlace>>()?;
    placed.sort_by_key(|&(_, place, transfer, _)| {
        let departs = !matches!(place, Place::Start(..));
        (place.at(), departs, transfer)
    });
    Ok(placed)
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

impl From<TooManyPaths> for Pathless {
    fn from(_: TooManyPaths) -> Self {
        Self::TooMany
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
