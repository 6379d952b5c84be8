//! Probe points of a function, and the sites at which they are patched in.
//!
//! A plan is made from the file alone. For every wanted probe point it names the [`Tactic`] that
//! makes it available, or the reason why it is not. The bytes to overwrite are in [`Site`]s that
//! never overlap.

mod assemble;
mod candidates;
mod check;
mod draft;
mod grow;
mod ladder;
mod landing;
mod order;
mod outcome;
mod padding;
mod point;
mod pun;
mod refuse;
mod site;
mod sites;
mod surroundings;
mod trap;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::addr::Svma;
use crate::flow::{Flow, is_fragment, returns_to_caller};
use crate::function::{Function, FunctionKind};
use crate::image::Image;
use crate::inside::Region;

pub use crate::flow::ModuleContext;
pub use crate::isa::Pun;
pub use outcome::{FunctionPlan, PointPlan};
pub use point::{Allowed, Effect, Effects, ProbePoint, Tactic};
pub use refuse::RefuseReason;
pub(crate) use site::Row;
pub use site::Site;

/// Plans `function` of `image`. `context` must have been made from the same image.
pub fn plan(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    want: Effects,
) -> FunctionPlan {
    plan_allowed(image, context, function, want, Allowed::ALL)
}

/// Like [`plan`], within the limits that the process sets by `allowed`.
///
/// A probe point that could only be patched with moved calls is refused with
/// [`RefuseReason::ShadowStack`] if these are not allowed.
pub fn plan_allowed(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    want: Effects,
    allowed: Allowed,
) -> FunctionPlan {
    plan_points(image, context, function, (want, &[]), allowed)
}

/// Like [`plan_allowed`], with a hook before each instruction in `points`.
///
/// Each point has a number. Hooks at the same instruction run in ascending order of their numbers.
pub fn plan_points(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    (want, points): (Effects, &[(Svma, u32)]),
    allowed: Allowed,
) -> FunctionPlan {
    let points = points.iter().map(|&(at, number)| ProbePoint {
        at,
        effect: Effect::Point(number),
    });
    let points: Vec<ProbePoint> = points.collect();
    let hooks = Hooked {
        points: &points,
        ..Hooked::default()
    };
    plan_inside(image, context, function, (want, hooks), allowed)
}

/// The hooks wanted inside a function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hooked<'a> {
    /// The points, counts, and ways into copies.
    pub points: &'a [ProbePoint],
    /// The regions that [`Effect::Enter`] names by their numbers.
    pub regions: &'a [Arc<Region>],
    /// Addresses at which control may arrive from elsewhere, such as from trampolines that are not
    /// used any more. No patch is over them.
    pub arrivals: &'a [Svma],
}

/// Like [`plan_points`], with hooks for these points and counts.
///
/// # Panics
/// If one of the points is an entry or an exit.
pub fn plan_inside(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    (want, hooks): (Effects, Hooked<'_>),
    allowed: Allowed,
) -> FunctionPlan {
    assert!(hooks.points.iter().all(|point| point.effect.is_inside()));
    let with = |allowed| plan_with(image, context, function, (want, hooks), allowed);
    let mut plan = with(allowed);
    if allowed.moved_calls || plan.refused().is_none() {
        return plan;
    }
    let free = with(Allowed {
        moved_calls: true,
        ..allowed
    });
    let all = std::iter::once(&mut plan.entry)
        .chain(&mut plan.exits)
        .chain(&mut plan.points);
    let all_free = std::iter::once(&free.entry)
        .chain(&free.exits)
        .chain(&free.points);
    for (point, free) in all.zip(all_free) {
        if point.outcome.is_err() && free.outcome.is_ok() {
            point.outcome = Err(RefuseReason::ShadowStack);
        }
    }
    plan
}

fn plan_with(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    (want, hooks): (Effects, Hooked<'_>),
    allowed: Allowed,
) -> FunctionPlan {
    let Hooked {
        points,
        regions,
        arrivals,
    } = hooks;
    debug_assert!(
        std::ptr::eq(image.data(), context.data),
        "the context of another image"
    );
    let refuse = |reason| FunctionPlan {
        points: planned(points, std::iter::repeat(Err(reason))),
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
    let Some(mut flow) = Flow::of(image, context, function) else {
        return refuse(RefuseReason::Undecodable);
    };
    if let Err(reason) = surroundings::consider(image, context, &mut flow) {
        return refuse(reason);
    }
    flow.add_ways_back(arrivals);
    if unnamed && is_claimed(image, context, &flow) {
        return refuse(RefuseReason::Fragment);
    }
    let mut ladder = ladder::Ladder::new(image, context, &flow, allowed);
    ladder.regions = regions;
    let outcomes = ladder.climb(want, points);
    // If only some sites were written, their jumps would lead into the middle of other windows.
    let Some(sites) = ladder.into_sites() else {
        return refuse(RefuseReason::BranchIntoWindow);
    };
    let exits = flow.leaves.iter().map(ProbePoint::of_leave);
    let first = first(&sites, &flow);
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
        points: planned(points, outcomes.points),
        sites,
        first,
        returns_to_caller: want.exits && returns_to_caller(image, &flow),
        want,
        allowed,
    }
}

/// The number of sites at the start of `sites` that the entry and the points need.
///
/// A needed site has a hook for the entry or a point, leads a jump past the entry hook, or serves
/// another site. Every prefix of `sites` is safe to apply alone.
fn first(sites: &[Site], flow: &Flow) -> usize {
    let is_needed = |site: &Site| {
        let serves_exits = site.points.iter().all(|p| p.effect.is_exit());
        let goes_back = |at: &Svma| site.window.contains(at);
        site.points.is_empty() || !serves_exits || flow.reentries.iter().any(goes_back)
    };
    sites.iter().rposition(is_needed).map_or(0, |last| last + 1)
}

/// Pairs each of `points` with its outcome.
fn planned(
    points: &[ProbePoint],
    outcomes: impl IntoIterator<Item = Result<Tactic, RefuseReason>>,
) -> Vec<PointPlan> {
    let pairs = points.iter().zip(outcomes);
    pairs
        .map(|(&point, outcome)| PointPlan { point, outcome })
        .collect()
}

/// The maximum number of functions examined to find the owner of a piece of code.
const MOST_OWNERS: usize = 8;

/// True if another function contains this code as a part.
///
/// The candidates are the functions into whose middle this code jumps.
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
        let owner = Function::nameless(range);
        Flow::of(image, context, &owner).is_some_and(|owner| owner.contains(start.0))
    })
}
