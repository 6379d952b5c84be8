//! The last tactic: a breakpoint.

use crate::flow::{Flow, LeaveKind, ModuleContext};
use crate::image::Image;
use crate::relocate::Displaced;

use super::outcome::{FunctionPlan, PointPlan};
use super::point::{Effect, Tactic};
use super::refuse::{RefuseReason, unhookable};
use super::site::Site;

impl FunctionPlan {
    /// Has a breakpoint lead to each probe point that was refused for want of room alone.
    pub fn allow_traps(&mut self, image: &Image<'_>, context: &ModuleContext<'_>) {
        let Some(flow) = Flow::of(image, context, &self.function) else {
            return;
        };
        let mut sites: Vec<Site> = Vec::new();
        let points = std::iter::once(&mut self.entry)
            .chain(&mut self.points)
            .chain(&mut self.exits);
        for plan in points.filter(|p| p.outcome.is_err()) {
            // An entry can be an exit as well.
            let same = sites.iter_mut().find(|s| s.window.start == plan.point.at);
            if let Some(site) = same {
                site.points.push(plan.point);
                site.points.sort_by_key(|p| (p.at, p.effect));
                plan.outcome = Ok(Tactic::Trap);
            } else if context
                .restartable
                .iter()
                .all(|r| !r.contains(&plan.point.at))
                && let Some(site) = trap(image, &flow, &self.sites, plan)
                && (self.allowed.moved_calls || !site.displaced.iter().any(Displaced::is_call))
            {
                plan.outcome = Ok(Tactic::Trap);
                sites.push(site);
            }
        }
        // None of them depends on another, nor another on one of them.
        self.sites.extend(sites);
    }
}

/// The site for a refused probe point, where one byte is enough.
fn trap(image: &Image<'_>, flow: &Flow, sites: &[Site], plan: &PointPlan) -> Option<Site> {
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
        // A loop back to the entry is no call, and would meet the breakpoint.
        Effect::Entry => flow.reentries.is_empty(),
        Effect::Point(_) => true,
        Effect::Exit | Effect::TailExit => {
            let leave = flow.leaves.iter().find(|l| l.at == at)?;
            unhookable(flow, leave).is_none() && leave.kind != LeaveKind::FallsThrough
        }
    };
    let taken = |s: &Site| {
        let lands = s.landing.as_ref().is_some_and(|l| l.contains(&at));
        let kept = s.pun.as_ref().is_some_and(|p| p.depends.contains(&at));
        s.window.contains(&at) || lands || kept
    };
    if !roomless || !hookable || sites.iter().any(taken) {
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
        displaced: vec![displaced],
    })
}
