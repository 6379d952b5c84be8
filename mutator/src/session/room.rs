//! Plans are made from files alone. What of them a process has no room for is planned anew.

use patcher::plan::{Effects, FunctionPlan, RefuseReason, plan_without_puns};

use super::place::Places;
use super::{Candidate, Session, SessionError};

impl Session {
    /// Leaves puns out of the plans whose punned jumps have nowhere to lead. What is refused for
    /// that reason needs no bytes that others could have.
    pub(super) fn plan_for_room(&self, candidates: &mut [Candidate]) -> Result<(), SessionError> {
        let is_punned = |c: &&mut Candidate| {
            c.plan.refused().is_none() && c.plan.sites.iter().any(|s| s.pun.is_some())
        };
        let mut punned = candidates.iter_mut().filter(is_punned).peekable();
        if punned.peek().is_none() {
            return Ok(());
        }
        let places = Places::new(&self.document, self.process.maps_with_heap()?);
        let wanted = self.wanted();
        for candidate in punned {
            if !places.have_stones_for(candidate) && self.known(candidate).is_none() {
                candidate.plan_without_puns(wanted);
            }
        }
        Ok(())
    }
}

impl Candidate {
    fn plan_without_puns(&mut self, wanted: Effects) {
        let want = Effects {
            exits: wanted.exits && !self.reaper,
            ..wanted
        };
        let function = self.plan.function.clone();
        self.plan = plan_without_puns(&self.image.image, &self.image.context, &function, want);
        self.try_traps();
        if self.plan.refused().is_some() {
            self.plan = FunctionPlan::refusal(&function, RefuseReason::PunOutOfReach);
        }
    }
}
