//! The result of planning.

use std::collections::BTreeSet;

use super::point::{Allowed, Effect, Effects, ProbePoint, Tactic};
use super::refuse::RefuseReason;
use super::site::Site;
use crate::addr::Svma;
use crate::function::Function;
use crate::inside::PathStep;

/// The outcome for one probe point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointPlan {
    /// The probe point.
    pub point: ProbePoint,
    /// The tactic that patches it in, or the reason why it is refused.
    pub outcome: Result<Tactic, RefuseReason>,
}

/// The plan for one function.
#[derive(Clone, Debug)]
pub struct FunctionPlan {
    /// The function.
    pub function: Function,
    /// The function's entry, planned even if only exits are wanted. In that case no site serves it.
    pub entry: PointPlan,
    /// The function's exits, ascending; empty if none are wanted.
    pub exits: Vec<PointPlan>,
    /// The points wanted at instructions, in the order given.
    pub points: Vec<PointPlan>,
    /// The sites to overwrite; they never overlap.
    ///
    /// A site without a probe point serves other sites. It leads a jump past the entry hook or
    /// around another site's window, or it has room for a springboard's landing.
    ///
    /// Apply all sites of a plan together in this order, and undo them together in reverse. Then
    /// the program behaves like the original after each step.
    pub sites: Vec<Site>,
    /// The number of leading `sites` that the entry and the points need. While only these are
    /// applied, the others can be applied and undone.
    pub first: usize,
    /// True if every return uses the return address that the function was called with. False if
    /// that is not known, or if exits are not wanted.
    pub returns_to_caller: bool,
    /// The probe points that were wanted.
    pub want: Effects,
    /// The limits that the plan was made for.
    pub allowed: Allowed,
}

impl FunctionPlan {
    /// A plan that wants only the entry of `function`, and refuses it for `reason`.
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
            first: 0,
            returns_to_caller: false,
            want: Effects {
                entry: true,
                exits: false,
            },
            allowed: Allowed::ALL,
        }
    }

    /// The functions that [`Effect::TailExit`] names at the function's exits, each once.
    pub fn tail_calls(&self) -> BTreeSet<Svma> {
        let called = self
            .exits
            .iter()
            .filter_map(|exit| match exit.point.effect {
                Effect::TailExit(called) => called,
                _ => None,
            });
        called.collect()
    }

    /// Restricts the functions that may end this activation together with their own.
    ///
    /// A tail call to a function in `ends` leaves the end of the activation to that function's
    /// exits. At any other tail call, the hook ends the activation.
    pub fn lend_to(&mut self, ends: &BTreeSet<Svma>) {
        for point in self.hooks_mut() {
            if let Effect::TailExit(called) = &mut point.effect {
                *called = called.filter(|called| ends.contains(called));
            }
        }
    }

    /// Renumbers the points, spans and timed paths: number `n` becomes `number(n)`.
    pub fn number_points(&mut self, number: impl Fn(u32) -> u32) {
        for point in self.hooks_mut() {
            match &mut point.effect {
                Effect::Point(known) => *known = number(*known),
                Effect::Span(step) => step.number = number(step.number),
                Effect::Path(PathStep {
                    timed: Some(timed), ..
                }) => timed.number = number(timed.number),
                _ => {}
            }
        }
    }

    /// Adds `base` to the numbers of all counters.
    pub fn number_counters_from(&mut self, base: u32) {
        for point in self.hooks_mut() {
            match &mut point.effect {
                Effect::Count(counter) => counter.number += base,
                Effect::Path(step) => step.first += base,
                _ => {}
            }
        }
        for site in &mut self.sites {
            site.counters_from += base;
        }
    }

    /// All exits and points, in the outcomes and in the sites.
    fn hooks_mut(&mut self) -> impl Iterator<Item = &mut ProbePoint> {
        let sites = self.sites.iter_mut().flat_map(|site| {
            let rows = site.rows.iter_mut().flat_map(|row| &mut row.points);
            site.points.iter_mut().chain(rows)
        });
        let plans = self.exits.iter_mut().chain(&mut self.points);
        plans.map(|plan| &mut plan.point).chain(sites)
    }

    /// The address of the first wanted probe point that is refused, and the reason. `None` if none
    /// is refused.
    pub fn refused(&self) -> Option<(Svma, RefuseReason)> {
        let entry = std::iter::once(&self.entry).filter(|_| self.want.entry);
        entry
            .chain(&self.exits)
            .chain(&self.points)
            .find_map(|p| p.outcome.err().map(|reason| (p.point.at, reason)))
    }
}
