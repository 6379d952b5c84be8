//! The last tactic: a breakpoint.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::addr::Svma;
use crate::flow::{Flow, LeaveKind, ModuleContext};
use crate::image::Image;
use crate::isa::Displaced;

use super::outcome::{FunctionPlan, PointPlan};
use super::point::{Effect, Tactic};
use super::refuse::{RefuseReason, unhookable};
use super::site::Site;

impl FunctionPlan {
    /// Plans breakpoints at all wanted probe points that were refused only for lack of room:
    /// appends their sites to `sites`, and updates their outcomes and `first`.
    pub fn allow_traps(&mut self, image: &Image<'_>, context: &ModuleContext<'_>) {
        let Some(flow) = Flow::of(image, context, &self.function) else {
            return;
        };
        let taken = Taken::by(&self.sites);
        let mut sites: BTreeMap<Svma, Site> = BTreeMap::new();
        let entry = self.want.entry.then_some(&mut self.entry).into_iter();
        let points = entry.chain(&mut self.points).chain(&mut self.exits);
        for plan in points.filter(|p| p.outcome.is_err()) {
            let at = plan.point.at;
            // An instruction can be an entry and an exit.
            if let Some(site) = sites.get_mut(&at) {
                site.points.push(plan.point);
                site.points.sort_by_key(|p| (p.at, p.effect));
                plan.outcome = Ok(Tactic::Trap);
            } else if context.restartable.iter().all(|r| !r.contains(&at))
                && !taken.holds(at)
                && let Some(site) = trap(image, &flow, plan)
                && (self.allowed.moved_calls || !site.displaced.iter().any(Displaced::is_call))
            {
                plan.outcome = Ok(Tactic::Trap);
                sites.insert(at, site);
            }
        }
        // Breakpoint sites and other sites do not depend on each other.
        let has_others = |site: &Site| site.points.iter().any(|p| !p.effect.is_exit());
        let is_first = sites.values().any(has_others);
        self.sites.extend(sites.into_values());
        if is_first {
            self.first = self.sites.len();
        }
    }
}

/// Disjoint ranges that sites change or depend on, by address.
struct Taken(Vec<Range<Svma>>);

impl Taken {
    fn by(sites: &[Site]) -> Self {
        let ranges = sites.iter().flat_map(|site| {
            let depends = site.pun.as_ref().map(|pun| pun.depends.clone());
            [Some(site.window.clone()), site.landing.clone(), depends]
        });
        let mut ranges: Vec<Range<Svma>> = ranges.flatten().collect();
        ranges.sort_by_key(|r| (r.start, r.end));
        // A landing may overlap a window.
        ranges.dedup_by(|next, range| {
            let overlaps = next.start < range.end;
            if overlaps {
                range.end = range.end.max(next.end);
            }
            overlaps
        });
        Self(ranges)
    }

    fn holds(&self, at: Svma) -> bool {
        let after = self.0.partition_point(|r| r.start <= at);
        let before = after.checked_sub(1).map(|index| &self.0[index]);
        before.is_some_and(|r| r.contains(&at))
    }
}

/// The breakpoint site for a refused probe point; `None` if it was not refused for lack of room, or
/// if a single byte does not suffice.
fn trap(image: &Image<'_>, flow: &Flow, plan: &PointPlan) -> Option<Site> {
    let roomless = matches!(
        plan.outcome,
        Err(RefuseReason::TooShort
            | RefuseReason::BranchIntoWindow
            | RefuseReason::CallInWindow
            | RefuseReason::OverlapsFunction
            | RefuseReason::ShadowStack)
    );
    let at = plan.point.at;
    let insn = &flow.insns[flow.index_of(at.0)?];
    let hookable = match plan.point.effect {
        // A jump back to the entry is not a call, but would hit the breakpoint.
        Effect::Entry => flow.reentries.is_empty(),
        Effect::Point(_) | Effect::Count(..) | Effect::Path(..) | Effect::Span(..) => true,
        // The counts of the region are possible without a copy.
        Effect::Enter(_) => false,
        Effect::Exit | Effect::TailExit(_) => {
            let first = flow.leaves.partition_point(|l| l.at < at);
            let leave = flow.leaves.get(first).filter(|l| l.at == at)?;
            unhookable(flow, leave).is_none() && leave.kind != LeaveKind::FallsThrough
        }
    };
    if !roomless || !hookable {
        return None;
    }
    let bytes = image.bytes(at, insn.len() as u64)?;
    let displaced = Displaced::of(insn, bytes).ok()?;
    Some(Site {
        window: at..at.plus(1),
        tactic: Tactic::Trap,
        points: vec![plan.point],
        landing: None,
        pun: None,
        hosted: Vec::new(),
        old: [bytes[..1].to_vec(), Vec::new()],
        entry: flow.ranges[0].start..flow.entry.plus(1),
        rows: Vec::new(),
        regions: Vec::new(),
        counters_from: 0,
        displaced: vec![displaced],
    })
}
