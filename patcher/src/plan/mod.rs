//! Probe points of a function and the sites where they are patched in.
//!
//! A plan is made from the file alone. It says for every wanted probe point by which [`Tactic`] it
//! can be had, or why not, and gathers the bytes to overwrite into [`Site`]s that never overlap.

mod assemble;
mod candidates;
mod check;
mod ladder;
mod landing;
mod order;
mod padding;
mod pun;
mod site;
mod trap;

use std::fmt;
use std::ops::Range;

use iced_x86::{Instruction, Register};

use crate::addr::Svma;
use crate::flow::{Doubt, Flow, Leave, LeaveKind, is_fragment};
use crate::function::{Function, FunctionKind};
use crate::image::Image;

pub use crate::flow::ModuleContext;
pub use pun::Pun;
pub(crate) use site::Row;
pub use site::Site;

/// What happens when control passes a probe point. Where several meet at one instruction, their hooks
/// run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// An activation of the function begins.
    Entry,
    /// Control comes to the instruction, running on to it or jumping. The number is what the stub is
    /// told.
    Point(u32),
    /// The activation ends.
    Exit,
}

/// An instruction before which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbePoint {
    /// The instruction's address.
    pub at: Svma,
    /// What the hook is told.
    pub effect: Effect,
}

/// How control is led to a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tactic {
    /// Five bytes of whole instructions become a jump.
    Window,
    /// The instruction and the padding behind it become a jump.
    Padding,
    /// A near jump gets another displacement.
    Retarget,
    /// Two bytes become a short jump to a jump that is placed in padding close by, or in bytes
    /// that another site's window has left over.
    Springboard,
    /// One to four bytes become the beginning of a jump whose displacement ends with the bytes that
    /// follow and stay. So it leads to one of few addresses.
    Pun,
    /// One byte becomes a breakpoint, whose signal leads on: slow, and only where it was allowed.
    Trap,
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "window",
            Self::Padding => "padding",
            Self::Retarget => "retarget",
            Self::Springboard => "springboard",
            Self::Pun => "pun",
            Self::Trap => "trap",
        })
    }
}

/// Why a probe point cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefuseReason {
    /// Control can arrive in the middle of the bytes that would be overwritten.
    BranchIntoWindow,
    /// There are too few bytes before something that must stay.
    TooShort,
    /// A call would return into the middle of the bytes that would be overwritten.
    CallInWindow,
    /// The function's bytes are not instructions from start to end.
    DataInCode,
    /// Where an indirect jump lands is not known.
    IndirectJump,
    /// Another function begins in the bytes that would be overwritten.
    OverlapsFunction,
    /// An instruction that would be moved cannot be decoded, or the file has no bytes for it.
    Undecodable,
    /// The symbol is a resolver, run once by the loader, and not the function of that name.
    Ifunc,
    /// An instruction that would be moved works only where it stands, such as `syscall`.
    Immovable,
    /// The bytes belong to a restartable sequence.
    RestartableSequence,
    /// The function jumps back to its own first instruction, and that jump cannot be led past the
    /// entry hook.
    LoopToEntry,
    /// These bytes are a part of some function and no function of their own.
    Fragment,
    /// The function jumps into another one and leaves its frame standing.
    JumpsAstray,
    /// In this process there is no room where a punned jump could lead.
    PunOutOfReach,
    /// The process has no free memory within 2 GiB of the function's module.
    NoNearMemory,
    /// An instruction that would be moved has an operand that it could not reach from there.
    OutOfReach,
    /// Something below the stack pointer, where a hook would push, may be used where the function is
    /// left.
    RedZone,
    /// The kernel maps the code into every process, and it cannot be written to.
    Vdso,
    /// The code is mapped shared: what is written to it would go to its file and to all who map that.
    SharedText,
    /// No instruction of the function begins at the address given.
    NotAnInstruction,
    /// What measures needs the function for itself, to follow the program by it.
    UsedByIpath,
    /// A call would have to be moved, and the process has user shadow stacks, which its return would not agree with.
    ShadowStack,
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BranchIntoWindow => "branch-into-window",
            Self::TooShort => "too-short",
            Self::CallInWindow => "call-in-window",
            Self::DataInCode => "data-in-code",
            Self::IndirectJump => "indirect-jump",
            Self::OverlapsFunction => "overlaps-function",
            Self::Undecodable => "undecodable",
            Self::Ifunc => "ifunc",
            Self::Immovable => "immovable",
            Self::RestartableSequence => "restartable-sequence",
            Self::LoopToEntry => "loop-to-entry",
            Self::Fragment => "fragment",
            Self::JumpsAstray => "jumps-astray",
            Self::PunOutOfReach => "pun-out-of-reach",
            Self::NoNearMemory => "no-near-memory",
            Self::OutOfReach => "out-of-reach",
            Self::RedZone => "red-zone",
            Self::Vdso => "vdso",
            Self::SharedText => "shared-text",
            Self::NotAnInstruction => "not-an-instruction",
            Self::UsedByIpath => "used-by-ipath",
            Self::ShadowStack => "shadow-stack",
        })
    }
}

impl From<Doubt> for RefuseReason {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::DataInCode => Self::DataInCode,
            Doubt::IndirectJump => Self::IndirectJump,
        }
    }
}

/// Which probe points are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// The function's entry.
    pub entry: bool,
    /// All its exits.
    pub exits: bool,
}

/// What a process allows that is to be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Has it room where punned jumps could lead?
    pub puns: bool,
    /// May calls be moved? A moved one is a push and a jump: where a user shadow stack is on
    /// (Documentation/arch/x86/shstk.rst) its return faults.
    pub moved_calls: bool,
}

impl Allowed {
    /// What an ordinary process does.
    pub const ALL: Self = Self {
        puns: true,
        moved_calls: true,
    };
}

/// What became of one probe point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointPlan {
    /// The probe point.
    pub point: ProbePoint,
    /// How it is patched in, or why not.
    pub outcome: Result<Tactic, RefuseReason>,
}

/// How one function is patched.
#[derive(Clone, Debug)]
pub struct FunctionPlan {
    /// The function.
    pub function: Function,
    /// Its entry, planned even where only exits are wanted (then nothing in `sites` serves it).
    pub entry: PointPlan,
    /// Its exits, ascending; empty where none are wanted.
    pub exits: Vec<PointPlan>,
    /// The points wanted at instructions, in the order in which they were given.
    pub points: Vec<PointPlan>,
    /// What is overwritten, never overlapping. A site without a probe point serves others: it leads
    /// a jump past the entry hook or around another site's window, or has room for a springboard's
    /// landing. All sites of a plan are applied and undone together, in this order and the reverse:
    /// then each step leaves a program that behaves as the original does.
    pub sites: Vec<Site>,
    /// What it was made for.
    pub allowed: Allowed,
}

impl FunctionPlan {
    /// That nothing of `function` can be patched, and why.
    pub fn refusal(function: &Function, reason: RefuseReason) -> Self {
        let point = ProbePoint {
            at: function.range.start,
            effect: Effect::Entry,
        };
        Self {
            function: function.clone(),
            entry: PointPlan {
                point,
                outcome: Err(reason),
            },
            exits: Vec::new(),
            points: Vec::new(),
            sites: Vec::new(),
            allowed: Allowed::ALL,
        }
    }

    /// The first probe point that cannot be had, and why.
    pub fn refused(&self) -> Option<(Svma, RefuseReason)> {
        std::iter::once(&self.entry)
            .chain(&self.exits)
            .chain(&self.points)
            .find_map(|p| p.outcome.err().map(|reason| (p.point.at, reason)))
    }
}

/// Plans `function` of `image`; `context` is that image's.
pub fn plan(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    want: Effects,
) -> FunctionPlan {
    plan_allowed(image, context, function, want, Allowed::ALL)
}

/// The same for a process that allows this. What it cannot have without moved calls, and could with them, is refused
/// for that.
pub fn plan_allowed(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    want: Effects,
    allowed: Allowed,
) -> FunctionPlan {
    let with = |allowed| plan_with(image, context, function, (want, &[]), allowed);
    let mut plan = with(allowed);
    if allowed.moved_calls || plan.refused().is_none() {
        return plan;
    }
    let free = with(Allowed {
        moved_calls: true,
        ..allowed
    });
    let points = std::iter::once(&mut plan.entry).chain(&mut plan.exits);
    for (point, free) in points.zip(std::iter::once(&free.entry).chain(&free.exits)) {
        if point.outcome.is_err() && free.outcome.is_ok() {
            point.outcome = Err(RefuseReason::ShadowStack);
        }
    }
    plan
}

/// The same as [`plan`] with hooks before the instructions at `points`, each with its number. Several
/// at one instruction run by ascending number.
pub fn plan_points(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    want: Effects,
    points: &[(Svma, u32)],
) -> FunctionPlan {
    plan_with(image, context, function, (want, points), Allowed::ALL)
}

fn plan_with(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    (want, points): (Effects, &[(Svma, u32)]),
    allowed: Allowed,
) -> FunctionPlan {
    debug_assert!(
        std::ptr::eq(image.data(), context.data),
        "the context of another image"
    );
    let points = points.iter().map(|&(at, number)| ProbePoint {
        at,
        effect: Effect::Point(number),
    });
    let points: Vec<ProbePoint> = points.collect();
    let refuse = |reason| FunctionPlan {
        points: planned(&points, std::iter::repeat(Err(reason))),
        allowed,
        ..FunctionPlan::refusal(function, reason)
    };
    if function.kind == FunctionKind::Ifunc {
        return refuse(RefuseReason::Ifunc);
    }
    let unnamed = function.kind == FunctionKind::UnwindOnly;
    if unnamed && is_fragment(image, &function.range) {
        return refuse(RefuseReason::Fragment);
    }
    let Some(flow) = Flow::of(image, context, function) else {
        return refuse(RefuseReason::Undecodable);
    };
    if unnamed && is_claimed(image, context, &flow) {
        return refuse(RefuseReason::Fragment);
    }
    let mut ladder = ladder::Ladder::new(image, context, &flow, allowed);
    let outcomes = ladder.climb(want, &points);
    let exits = flow.leaves.iter().map(|leave| ProbePoint {
        at: leave.at,
        effect: Effect::Exit,
    });
    FunctionPlan {
        function: function.clone(),
        entry: PointPlan {
            point: ProbePoint {
                at: flow.entry,
                effect: Effect::Entry,
            },
            outcome: outcomes.entry,
        },
        exits: planned(&exits.collect::<Vec<_>>(), outcomes.exits),
        points: planned(&points, outcomes.points),
        sites: ladder.into_sites(),
        allowed,
    }
}

/// Each of `points` with its outcome.
fn planned(
    points: &[ProbePoint],
    outcomes: impl IntoIterator<Item = Result<Tactic, RefuseReason>>,
) -> Vec<PointPlan> {
    let pairs = points.iter().zip(outcomes);
    pairs
        .map(|(&point, outcome)| PointPlan { point, outcome })
        .collect()
}

/// No more functions than this are looked at to find the one that some code is a part of.
const MOST_OWNERS: usize = 8;

/// Does another function, into whose middle this code jumps, count it as a part of its own?
fn is_claimed(image: &Image<'_>, context: &ModuleContext<'_>, flow: &Flow) -> bool {
    let start = flow.ranges[0].start;
    let mut owners: Vec<Range<Svma>> = Vec::new();
    for branch in flow
        .branches
        .iter()
        .filter(|b| !flow.ranges[0].contains(&Svma(b.to)))
    {
        let Some(owner) = image.functions().containing(Svma(branch.to)) else {
            continue;
        };
        let range = owner.start.range(owner.size);
        if owner.start.0 != branch.to && owners.len() < MOST_OWNERS && !owners.contains(&range) {
            owners.push(range);
        }
    }
    owners.into_iter().any(|range| {
        let owner = Function {
            range,
            linkage: String::new(),
            aliases: Vec::new(),
            kind: FunctionKind::UnwindOnly,
            cold: Vec::new(),
        };
        Flow::of(image, context, &owner).is_some_and(|owner| owner.contains(start.0))
    })
}

/// Why an exit has no single instruction that a hook could stand before.
fn unhookable(flow: &Flow, leave: &Leave) -> Option<RefuseReason> {
    match leave.kind {
        LeaveKind::Return
        | LeaveKind::Tail { .. }
        | LeaveKind::TailIndirect
        | LeaveKind::FallsThrough => needs_red_zone(flow, leave).then_some(RefuseReason::RedZone),
        LeaveKind::Doubtful => Some(RefuseReason::DataInCode),
        LeaveKind::Unclear => Some(RefuseReason::IndirectJump),
        LeaveKind::Astray => Some(RefuseReason::JumpsAstray),
    }
}

/// May something below the stack pointer be read where the function is left? A hook there pushes.
/// A return or tail call finds nothing of use there (psABI 3.2.2), but a jump may take its target
/// from there, and what runs on into the next symbol may be one function with it.
fn needs_red_zone(flow: &Flow, leave: &Leave) -> bool {
    let is_below = |insn: &Instruction| {
        insn.memory_base() == Register::RSP && (insn.memory_displacement64() as i64) < 0
    };
    match leave.kind {
        LeaveKind::FallsThrough => flow.insns.iter().any(is_below),
        _ => flow
            .index_of(leave.at.0)
            .is_some_and(|index| is_below(&flow.insns[index])),
    }
}
