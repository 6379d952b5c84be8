//! The points of one function that are asked for, and whether there can be such.

use abi::point::Standing;
use patcher::flow::{Base, FrameBefore, frames_before};
use patcher::function::Function;
use patcher::plan::{Allowed, Effects, FunctionPlan, RefuseReason, plan_points};
use patcher::{Bias, Svma};

use super::candidate::{Origin, Point};
use super::refusal::Refusal;
use ipath_symbols::images::OpenImage;
use ipath_target::process::modules::{Module, VDSO};

/// Nothing but points.
const NOTHING: Effects = Effects {
    entry: false,
    exits: false,
};

/// The points in one function.
pub struct Pointed {
    /// Index of the module in the list it was selected from.
    pub(super) module: usize,
    pub(super) image: &'static OpenImage,
    pub(super) bias: Bias,
    pub(super) function: Function,
    pub(super) points: Vec<Point>,
    pub(super) allowed: Allowed,
    /// Breakpoints may lead to what nothing else can.
    pub(super) traps: bool,
}

impl Pointed {
    /// The names of its points, with the reason of those that are refused.
    pub fn points(&self) -> impl Iterator<Item = (&str, Option<Refusal>)> {
        let refused = |point: &Point| {
            let no_room = point.no_room.filter(|_| !self.traps);
            let refused = point.refused.or(no_room);
            refused.map(Refusal::from)
        };
        self.points
            .iter()
            .map(move |p| (p.name.as_str(), refused(p)))
    }

    /// The file it is in.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            module: self.module,
            image: self.image,
            bias: self.bias,
        }
    }

    /// A plan for its points alone.
    pub(super) fn plan(&self) -> FunctionPlan {
        let Self {
            image,
            function,
            points,
            allowed,
            ..
        } = self;
        plan_with(image, function, NOTHING, points, *allowed)
    }

    /// Finds out which of its points there can be, with nothing else in the way.
    pub(super) fn look(&mut self, module: &Module) {
        let refusal = match module.path.as_str() {
            VDSO => Some(RefuseReason::Vdso),
            _ if module.shares(self.bias, &self.function) => Some(RefuseReason::SharedText),
            _ => None,
        };
        let plan = self.plan();
        let points: Vec<Svma> = self.points.iter().map(|p| p.at).collect();
        let OpenImage { image, context, .. } = self.image;
        let frames = frames_before(image, context, &self.function, &points);
        let outcomes = plan.points.iter().map(|p| p.outcome.err());
        for ((point, frame), outcome) in self.points.iter_mut().zip(frames).zip(outcomes) {
            let standing = frame.and_then(standing);
            point.standing = standing.unwrap_or_default();
            let unknown = standing.is_none().then_some(RefuseReason::UnknownFrame);
            let never = outcome.filter(|reason| !has_to_do_with_room(*reason));
            point.refused = refusal.or(never).or(unknown);
            point.no_room = outcome;
        }
    }
}

/// A plan for these points of a function, numbered as they stand.
pub(super) fn plan_with(
    image: &OpenImage,
    function: &Function,
    want: Effects,
    points: &[Point],
    allowed: Allowed,
) -> FunctionPlan {
    let points: Vec<(Svma, u32)> = points.iter().map(|p| p.at).zip(0..).collect();
    let OpenImage { image, context, .. } = image;
    plan_points(image, context, function, (want, &points), allowed)
}

/// May there be a way all the same?
fn has_to_do_with_room(reason: RefuseReason) -> bool {
    matches!(
        reason,
        RefuseReason::TooShort
            | RefuseReason::BranchIntoWindow
            | RefuseReason::CallInWindow
            | RefuseReason::OverlapsFunction
            | RefuseReason::ShadowStack
    )
}

/// As the runtime has it; `None` where that has no room for it.
fn standing(before: FrameBefore) -> Option<u64> {
    const WORD: i32 = 8;
    // From the canonical frame address to down from the return address, which is the word below it.
    let down = |words: i16| match words {
        0 => Some(0),
        words => u8::try_from(-1 - i32::from(words)).ok().filter(|&n| n > 0),
    };
    let mut standing = Standing {
        by_fp: before.base == Base::FramePointer,
        slot: before.frame.cfa.checked_sub(WORD)?,
        fp: down(before.frame.caller_frame_pointer)?,
        others: None,
    };
    let others = before.others.map(|others| others.map(down));
    let others = others.and_then(|[a, b, c, d, e]| Some([a?, b?, c?, d?, e?]));
    let whole = Standing { others, ..standing };
    standing.others = None;
    whole.encode().or_else(|| standing.encode())
}
