//! The requested points of one function, and whether they are possible.

use std::sync::Arc;

use abi::point::Standing;
use patcher::flow::{Base, FrameBefore, frames_before};
use patcher::function::Function;
use patcher::inside::Region;
use patcher::plan::{
    Allowed, Effect, Effects, FunctionPlan, Hooked, ProbePoint, RefuseReason, plan_inside,
};
use patcher::{Bias, Svma};

use super::candidate::{Origin, Point};
use super::counted::Counted;
use super::refusal::Refusal;
use ipath_symbols::images::OpenImage;
use ipath_target::process::modules::{Module, VDSO};

/// No effects besides the points.
const NOTHING: Effects = Effects {
    entry: false,
    exits: false,
};

/// The points in one function.
pub struct Pointed {
    /// Index of the module in the list it was selected from.
    pub(super) module: usize,
    pub(super) image: Arc<OpenImage>,
    pub(super) bias: Bias,
    pub(super) function: Function,
    pub(super) points: Vec<Point>,
    /// The counters of its edges. `None` if these are not counted.
    pub(super) counted: Option<Counted>,
    pub(super) allowed: Allowed,
    /// True if breakpoints may be used where no other tactic works.
    pub(super) traps: bool,
}

impl Pointed {
    /// No points of a function. The module is given by its index, image and bias.
    pub(super) fn none_in(
        (module, image, bias): (usize, Arc<OpenImage>, Bias),
        function: Function,
        allowed: Allowed,
    ) -> Self {
        Self {
            module,
            image,
            bias,
            function,
            points: Vec::new(),
            counted: None,
            allowed,
            traps: false,
        }
    }

    /// The names of the points. Each comes with the reason for which it is refused, or `None`.
    pub fn points(&self) -> impl Iterator<Item = (&str, Option<Refusal>)> {
        let refused = |point: &Point| {
            let no_room = point.no_room.filter(|_| !self.traps);
            point.refused.clone().or(no_room.map(Refusal::from))
        };
        let counted = self.counted.iter();
        let counted = counted.map(|c| (c.name.as_str(), c.refused.clone()));
        let points = self.points.iter();
        points
            .map(move |p| (p.name.as_str(), refused(p)))
            .chain(counted)
    }

    /// The file that contains the function.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            module: self.module,
            image: Arc::clone(&self.image),
            bias: self.bias,
        }
    }

    /// A plan for its points alone.
    pub(super) fn plan(&self) -> FunctionPlan {
        let Self {
            image,
            function,
            points,
            counted,
            allowed,
            ..
        } = self;
        plan_with(
            image,
            function,
            NOTHING,
            (points, counted.as_ref()),
            *allowed,
        )
    }

    /// Determines which of its points are possible if nothing else is in the way.
    pub(super) fn look(&mut self, module: &Module) {
        if self.points.is_empty() {
            return;
        }
        let refusal = match module.path.as_str() {
            VDSO => Some(RefuseReason::Vdso),
            _ if module.shares(self.bias, &self.function) => Some(RefuseReason::SharedText),
            _ => None,
        };
        let plan = self.plan();
        let points: Vec<Svma> = self.points.iter().map(|p| p.at).collect();
        let (image, context) = (self.image.image(), self.image.context());
        let frames = frames_before(image, context, &self.function, &points);
        let mut outcomes = plan.points.iter().map(|p| p.outcome.err());
        for (point, frame) in self.points.iter_mut().zip(frames) {
            let outcomes: Vec<_> = outcomes.by_ref().take(point.hook_count()).collect();
            let outcome = outcomes.into_iter().find_map(|outcome| outcome);
            let mut unknown = None;
            if !point.is_timed() {
                let standing = frame.and_then(standing);
                point.standing = standing.unwrap_or_default();
                unknown = standing.is_none().then_some(RefuseReason::UnknownFrame);
            }
            let never = outcome.filter(|reason| !has_to_do_with_room(*reason));
            let refused = refusal.or(never).or(unknown).map(Refusal::from);
            point.refused = refused.or(point.refused.take());
            point.no_room = outcome;
        }
    }
}

/// A plan for these points of a function, numbered in their order, and these counters.
pub(super) fn plan_with(
    image: &OpenImage,
    function: &Function,
    want: Effects,
    (points, counted): (&[Point], Option<&Counted>),
    allowed: Allowed,
) -> FunctionPlan {
    let times_paths = points.iter().any(|point| point.paths.is_some());
    let numbered = points.iter().zip(0..);
    let points: Vec<ProbePoint> = numbered.flat_map(|(p, number)| p.hooks(number)).collect();
    let of = |regions: &[Arc<Region>]| {
        let beside = counted.map(|counted| counted.hooks_beside(regions));
        let points = [&points[..], &beside.unwrap_or_default()].concat();
        let hooked = Hooked {
            points: &points,
            regions,
            arrivals: counted.map_or(&[], |counted| &counted.arrivals),
        };
        let (image, context) = (image.image(), image.context());
        plan_inside(image, context, function, (want, hooked), allowed)
    };
    let has_point = |region: &Region| points.iter().any(|p| region.index_of(p.at).is_some());
    let mut regions = counted.map_or_else(Vec::new, |counted| counted.regions.clone());
    regions.retain(|region| !times_paths && !has_point(region));
    loop {
        let plan = of(&regions);
        let refused = plan.points.iter().filter(|p| p.outcome.is_err());
        let mut refused = refused.map(|p| p.point.effect).peekable();
        if regions.is_empty() || refused.peek().is_none() {
            return plan;
        }
        // Without the copies of a region, its counters have hooks of their own. A hook elsewhere
        // may be refused because a way into a copy takes its room.
        let entered: Vec<u32> = refused
            .filter_map(|effect| match effect {
                Effect::Enter(number) => Some(number),
                _ => None,
            })
            .collect();
        if entered.is_empty() {
            regions.clear();
        }
        let numbered = (0..).zip(std::mem::take(&mut regions));
        let others = numbered.filter(|(number, _)| !entered.contains(number));
        regions = others.map(|(_, region)| region).collect();
    }
}

/// True if another tactic or less in the way may make the point possible.
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

/// The frame in the runtime's encoding. `None` if the encoding cannot represent it.
pub(super) fn standing(before: FrameBefore) -> Option<u64> {
    const WORD: i32 = 8;
    // Converts an offset from the CFA, in words, into one down from the return address, which is
    // the word below the CFA.
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
