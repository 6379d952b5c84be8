//! What a plan says.

use std::collections::BTreeSet;

use super::point::{Allowed, Effect, Effects, ProbePoint, Tactic};
use super::refuse::RefuseReason;
use super::site::Site;
use crate::addr::Svma;
use crate::function::Function;

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
    /// What is overwritten, never overlapping. A site without a probe point serves others. It leads
    /// a jump past the entry hook or around another site's window, or has room for a springboard's
    /// landing. All sites of a plan are applied together in this order, and undone together in the
    /// reverse. Then each step leaves a program that behaves as the original does.
    pub sites: Vec<Site>,
    /// So many of `sites`, from the first on, are what the entry and the points need. Where they are in alone, the others
    /// can come and go.
    pub first: usize,
    /// Does every return use the return address that the function has been called with?
    pub returns_to_caller: bool,
    /// What of the function was wanted.
    pub want: Effects,
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
            first: 0,
            returns_to_caller: false,
            want: Effects {
                entry: true,
                exits: false,
            },
            allowed: Allowed::ALL,
        }
    }

    /// Where its tail calls go, as far as that is known: each function once.
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

    /// Has the hooks of its tail calls count on the exits of those functions alone that `ends` names: the others end the
    /// activation there.
    pub fn lend_to(&mut self, ends: &BTreeSet<Svma>) {
        let exits = self.exits.iter_mut().map(|exit| &mut exit.point);
        let sites = self.sites.iter_mut().flat_map(|site| {
            let rows = site.rows.iter_mut().flat_map(|row| &mut row.points);
            site.points.iter_mut().chain(rows)
        });
        for point in exits.chain(sites) {
            if let Effect::TailExit(called) = &mut point.effect {
                *called = called.filter(|called| ends.contains(called));
            }
        }
    }

    /// Gives each point another number, that which `number` makes of its own.
    pub fn number_points(&mut self, number: impl Fn(u32) -> u32) {
        let sites = self.sites.iter_mut().flat_map(|site| {
            let rows = site.rows.iter_mut().flat_map(|row| &mut row.points);
            site.points.iter_mut().chain(rows)
        });
        let points = self.points.iter_mut().map(|point| &mut point.point);
        for point in points.chain(sites) {
            if let Effect::Point(known) = &mut point.effect {
                *known = number(*known);
            }
        }
    }

    /// The first probe point wanted that is not available, and why.
    pub fn refused(&self) -> Option<(Svma, RefuseReason)> {
        let entry = std::iter::once(&self.entry).filter(|_| self.want.entry);
        entry
            .chain(&self.exits)
            .chain(&self.points)
            .find_map(|p| p.outcome.err().map(|reason| (p.point.at, reason)))
    }
}
