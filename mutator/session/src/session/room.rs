//! Plans are made from files alone. Candidates for whose puns the process has no room are planned
//! again.

use std::collections::BTreeMap;
use std::ops::Range;

use patcher::Avma;
use patcher::plan::{Allowed, FunctionPlan, RefuseReason};

use super::claims::Claims;
use super::place::Places;
use super::pointed::plan_with;
use super::rows::row_of;
use super::{Candidate, SessionError};
use crate::segment::Document;
use ipath_target::process::{Mapping, ProcessError};

/// Reads the mappings of the target, with the heap that may grow. This takes a while in some
/// targets.
pub(super) type Maps<'m> = dyn Fn() -> Result<Vec<Mapping>, ProcessError> + 'm;

/// Plans candidates again without puns if their punned jumps have no free targets. Does the same if
/// they depend on bytes of other candidates and breakpoints are permitted. Fails if the mappings
/// cannot be read.
pub(super) fn plan_for_room(
    document: &Document,
    candidates: &mut [Candidate],
    maps: &Maps<'_>,
) -> Result<(), SessionError> {
    if !candidates.iter().any(Candidate::is_punned) {
        return Ok(());
    }
    let places = Places::new(document, maps()?);
    let taken = candidates.iter().filter(|c| c.plan.refused().is_none());
    let taken: BTreeMap<Avma, Avma> = taken.map(|c| (c.range().start, c.range().end)).collect();
    for candidate in candidates.iter_mut().filter(|c| c.is_punned()) {
        let in_the_way = candidate.traps && candidate.depends_on(&taken);
        let roomless = in_the_way || !places.have_stones_for(candidate);
        if roomless && row_of(document, candidate).is_none() {
            candidate.plan_without_puns();
        }
    }
    Ok(())
}

/// Admits a candidate if nothing is in its way. Otherwise, tries breakpoints if they are permitted.
/// True if the candidate has been admitted.
pub(super) fn admit_candidate(claims: &mut Claims, candidate: &mut Candidate) -> bool {
    if claims.admit(candidate) {
        return true;
    }
    if !candidate.traps || !candidate.is_punned() {
        return false;
    }
    candidate.plan_without_puns();
    candidate.plan.refused().is_none() && claims.admit(candidate)
}

impl Candidate {
    /// True if the plan has punned jumps and is not refused.
    fn is_punned(&self) -> bool {
        self.plan.refused().is_none() && self.plan.sites.iter().any(|s| s.pun.is_some())
    }

    /// The function's addresses in the process.
    fn range(&self) -> Range<Avma> {
        let range = &self.plan.function.range;
        self.bias.to_avma(range.start)..self.bias.to_avma(range.end)
    }

    /// True if one of its punned jumps depends on bytes of another of these functions.
    fn depends_on(&self, functions: &BTreeMap<Avma, Avma>) -> bool {
        let own = self.range().start;
        let mut puns = self.plan.sites.iter().filter_map(|s| s.pun.as_ref());
        puns.any(|pun| {
            let at = |svma| self.bias.to_avma(svma);
            let (start, end) = (at(pun.depends.start), at(pun.depends.end));
            let mut before = functions.range(..end).rev();
            before
                .next()
                .is_some_and(|(&at, &end)| at != own && end > start)
        })
    }

    /// Plans the function again without puns, with breakpoints if permitted. Refuses it if no
    /// tactic works.
    fn plan_without_puns(&mut self) {
        let want = self.plan.want;
        let function = self.plan.function.clone();
        let allowed = Allowed {
            puns: false,
            ..self.plan.allowed
        };
        let inside = (&self.points[..], self.counted.as_ref());
        self.plan = plan_with(&self.image, &function, want, inside, allowed);
        self.try_traps();
        if self.plan.refused().is_some() {
            self.plan = FunctionPlan::refusal(&function, RefuseReason::PunOutOfReach);
        }
    }
}
