//! The ladder: for each probe point the first tactic that is proven safe.

use std::ops::Range;

use super::check::Ground;
use super::draft::Draft;
use super::grow::Grow;
use super::point::{Allowed, Effect, Effects, ProbePoint, Tactic};
use super::refuse::{RefuseReason, unhookable};
use super::sites::Sites;
use crate::flow::{Flow, Leave, LeaveKind, ModuleContext};
use crate::image::Image;
use crate::isa::{Control, Insn, JUMP, SHORT_JUMP};

/// Windows are joined up to so many bytes: with each one that is joined, all of them are looked at again. The longest
/// in the functions of libc, libcrypto, Python and gdb has 17.
const LONGEST_WINDOW: u64 = 256;

type Outcome = Result<Tactic, RefuseReason>;

/// Places the probe points of one function, one after the other.
pub struct Ladder<'a, 'd> {
    pub(super) ground: Ground<'a, 'd>,
    pub(super) sites: Sites,
    /// May jumps be punned?
    pub(super) puns: bool,
}

/// What became of the probe points.
pub struct Outcomes {
    pub entry: Outcome,
    /// One for each of the flow's leaves, if they are wanted.
    pub exits: Vec<Outcome>,
    /// One for each of the points wanted.
    pub points: Vec<Outcome>,
}

/// What to do about the function's own jumps into the middle of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strays {
    /// They forbid the window, unless they are displaced by another site already.
    Forbid,
    /// They are patched as well, to lead to a copy of what they jump to.
    Lead,
}

impl<'a, 'd> Ladder<'a, 'd> {
    pub fn new(
        image: &'a Image<'d>,
        context: &'a ModuleContext<'a>,
        flow: &'a Flow,
        allowed: Allowed,
    ) -> Self {
        Self {
            ground: Ground {
                image,
                context,
                flow,
                moved_calls: allowed.moved_calls,
            },
            sites: Sites::default(),
            puns: allowed.puns,
        }
    }

    /// Places everything that is wanted, the cheap tactics for all points before the ones that
    /// take other points' room.
    pub fn climb(&mut self, want: Effects, wanted: &[ProbePoint]) -> Outcomes {
        let flow = self.ground.flow;
        let entry = ProbePoint {
            at: flow.entry,
            effect: Effect::Entry,
        };
        let mut outcome = self.grow(entry.at.0, Grow::Forward, Some(entry));
        // Too short a function may have room with the landing marker before its entry.
        if outcome.is_err() && entry.at != flow.ranges[0].start {
            outcome = self
                .grow(entry.at.0, Grow::Backward, Some(entry))
                .or(outcome);
        }
        if !want.entry {
            self.sites.clear();
        }
        let mut exits = Vec::new();
        if want.exits {
            exits.extend(flow.leaves.iter().map(|leave| self.exit(leave)));
        }
        let mut points: Vec<Outcome> = wanted.iter().map(|point| self.point(*point)).collect();
        for effort in [Self::last_resort, Self::very_last_resort] {
            for (leave, outcome) in flow.leaves.iter().zip(&mut exits) {
                if unhookable(flow, leave).is_some() {
                    continue;
                }
                let point = ProbePoint::of_leave(leave);
                effort(self, self.carrier(leave), point, Grow::Backward, outcome);
            }
            for (&point, outcome) in wanted.iter().zip(&mut points) {
                if self.unpointable(point.at.0).is_none() {
                    effort(self, point.at.0, point, Grow::Around, outcome);
                }
            }
            if want.entry {
                effort(self, entry.at.0, entry, Grow::Forward, &mut outcome);
            }
        }
        if want.entry {
            let loops = flow.reentries.iter().map(|at| at.0).collect::<Vec<_>>();
            if outcome.is_ok() && !loops.into_iter().all(|at| self.lead(at)) {
                self.sites.clear();
                let without_entry = Effects {
                    entry: false,
                    ..want
                };
                let outcomes = self.climb(without_entry, wanted);
                return Outcomes {
                    entry: Err(RefuseReason::LoopToEntry),
                    ..outcomes
                };
            }
        }
        Outcomes {
            entry: outcome,
            exits,
            points,
        }
    }

    fn exit(&mut self, leave: &Leave) -> Outcome {
        if let Some(reason) = unhookable(self.ground.flow, leave) {
            return Err(reason);
        }
        let point = ProbePoint::of_leave(leave);
        let last = self.carrier(leave);
        if let Some(tactic) = self.join(last, point) {
            return Ok(tactic);
        }
        if let LeaveKind::Tail { .. } = leave.kind
            && let Some(outcome) = self.retarget(leave.at.0, Some(point))
        {
            return outcome;
        }
        self.grow(last, Grow::Backward, Some(point))
    }

    fn point(&mut self, point: ProbePoint) -> Outcome {
        let at = point.at.0;
        if let Some(reason) = self.unpointable(at) {
            return Err(reason);
        }
        if let Some(tactic) = self.join(at, point) {
            return Ok(tactic);
        }
        // A conditional jump would come to its trampoline only when it is taken.
        let flow = self.ground.flow;
        let always = flow.index_of(at).is_some_and(|i| {
            flow.insns[i].is_long_jump() && flow.insns[i].control() == Control::Jump
        });
        if always && let Some(Ok(tactic)) = self.retarget(at, Some(point)) {
            return Ok(tactic);
        }
        self.grow(at, Grow::Around, Some(point))
    }

    /// Why no hook can stand before what is at `at`, wherever it is moved.
    fn unpointable(&self, at: u64) -> Option<RefuseReason> {
        let flow = self.ground.flow;
        let begins = flow.ranges[0].start.0;
        if flow.index_of(at).is_none() {
            Some(RefuseReason::NotAnInstruction)
        } else if !flow.is_certain(at) {
            Some(RefuseReason::DataInCode)
        } else if at == begins && at != flow.entry.0 && flow.is_target(at) {
            // Jumps to the landing marker before the entry are led to the entry itself.
            Some(RefuseReason::LoopToEntry)
        } else {
            None
        }
    }

    /// The instruction that has to be displaced to have `leave`: itself, or where the function runs
    /// on into the next one, the last before that.
    fn carrier(&self, leave: &Leave) -> u64 {
        let flow = self.ground.flow;
        match leave.kind {
            LeaveKind::FallsThrough => {
                let first = flow.insns.partition_point(|i| i.at() < leave.at.0);
                flow.insns[..first].last().map_or(leave.at.0, Insn::at)
            }
            _ => leave.at.0,
        }
    }

    /// Adds `point` to a site that displaces the instruction at `carrier` anyway.
    fn join(&mut self, carrier: u64, point: ProbePoint) -> Option<Tactic> {
        let serves = |site: &Draft| site.serves(carrier, point);
        let site = self.sites.join(carrier, point, serves)?;
        Some(site.tactic)
    }

    /// Rewrites the displacement of the near jump at `at`; `None` if it is not one.
    fn retarget(&mut self, at: u64, point: Option<ProbePoint>) -> Option<Outcome> {
        let flow = self.ground.flow;
        let insn = &flow.insns[flow.index_of(at)?];
        if !insn.is_long_jump() {
            return None;
        }
        Some(self.open(at..insn.end(), Tactic::Retarget, point, Strays::Forbid))
    }

    /// Tries windows over whole instructions around `at`, then the padding after it.
    fn grow(&mut self, at: u64, way: Grow, point: Option<ProbePoint>) -> Outcome {
        let mut first = self.ground.flow.doubt.map(Into::into);
        for (window, tactic) in self.windows(at, way, JUMP) {
            match self.open(window, tactic, point, Strays::Forbid) {
                Ok(tactic) => return Ok(tactic),
                Err(reason) => first = first.or(Some(reason)),
            }
        }
        Err(first.unwrap_or(RefuseReason::TooShort))
    }

    /// Makes a site of `window`, joined with the sites it overlaps.
    fn open(
        &mut self,
        window: Range<u64>,
        tactic: Tactic,
        point: Option<ProbePoint>,
        strays: Strays,
    ) -> Outcome {
        let mut draft = self.joined(window, tactic, point)?;
        // What is not joined stays clear: landings, and what puns depend on.
        if self.sites.is_reserved(&draft.window) {
            return Err(RefuseReason::TooShort);
        }
        self.displace(&mut draft)?;
        let tactic = draft.tactic;
        let is_placed = self.attempt(|ladder| {
            let joined = ladder.sites.overlapping(&draft.window);
            let joined: Vec<u64> = joined.map(|s| s.window.start).collect();
            for start in joined {
                ladder.sites.remove(start);
            }
            ladder.place(draft, strays)
        });
        is_placed
            .then_some(tactic)
            .ok_or(RefuseReason::BranchIntoWindow)
    }

    /// Keeps what `change` does to the sites if it succeeds and they can still be written in a safe order. Undoes it
    /// otherwise.
    pub(super) fn attempt(&mut self, change: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.sites.mark();
        let is_kept = change(self) && self.is_orderly(before);
        if !is_kept {
            self.sites.roll_back(before);
        }
        is_kept
    }

    /// Adds `draft`. Are all of the function's jumps into its middle displaced, or can they be?
    pub(super) fn place(&mut self, draft: Draft, strays: Strays) -> bool {
        let wanting = draft.strays.clone();
        self.sites.insert(draft);
        wanting.into_iter().all(|at| match strays {
            Strays::Forbid => self.sites.holding(at).is_some(),
            Strays::Lead => self.lead(at),
        })
    }

    /// A draft of `window` and of the sites that it overlaps, with their points.
    fn joined(
        &self,
        window: Range<u64>,
        tactic: Tactic,
        point: Option<ProbePoint>,
    ) -> Result<Draft, RefuseReason> {
        let mut draft = Draft {
            window: window.clone(),
            tactic,
            points: point.into_iter().collect(),
            landing: None,
            displaced: Vec::new(),
            strays: Vec::new(),
        };
        for site in self.sites.overlapping(&window) {
            if site.landing.is_some() {
                return Err(RefuseReason::TooShort);
            }
            draft.points.extend(&site.points);
            if site.window.start < window.start || draft.tactic == Tactic::Retarget {
                draft.tactic = Tactic::Window;
            }
            let start = draft.window.start.min(site.window.start);
            draft.window = start..draft.window.end.max(site.window.end);
        }
        if draft.window.end - draft.window.start > LONGEST_WINDOW {
            Err(RefuseReason::TooShort)
        } else {
            Ok(draft)
        }
    }

    /// Finds what `draft` displaces, and whether all its points are in that.
    fn displace(&self, draft: &mut Draft) -> Result<(), RefuseReason> {
        match draft.tactic {
            // Nothing but the displacement changes, so nothing is displaced.
            Tactic::Retarget => draft.displaced = self.ground.alone(draft.window.start)?,
            _ => {
                let found = self.ground.displace(&draft.window)?;
                (draft.displaced, draft.strays) = (found.displaced, found.strays);
            }
        }
        // Padding that nothing executes is in the window, but not in the trampoline.
        let is_point = |p: &&ProbePoint| matches!(p.effect, Effect::Point(_));
        let mut asked = draft.points.iter().filter(is_point);
        if asked.all(|p| draft.serves(p.at.0, *p)) {
            Ok(())
        } else {
            Err(RefuseReason::DataInCode)
        }
    }

    /// Makes the jump at `at` one that can be led elsewhere, by displacing it.
    fn lead(&mut self, at: u64) -> bool {
        if self.sites.holding(at).is_some() {
            return true;
        }
        if let Some(outcome) = self.retarget(at, None) {
            return outcome.is_ok();
        }
        self.grow(at, Grow::Backward, None).is_ok()
            || self.spring(at, None, Grow::Backward, Strays::Forbid)
            || self.pun(at, None, Grow::Backward)
    }

    /// Has the point at `carrier` been refused for a reason that more effort can avoid? A site made
    /// for another point may hold it by now: then it is had.
    fn is_open(&mut self, carrier: u64, point: ProbePoint, outcome: &mut Outcome) -> bool {
        let avoidable = matches!(
            outcome,
            Err(RefuseReason::BranchIntoWindow
                | RefuseReason::TooShort
                | RefuseReason::CallInWindow
                | RefuseReason::OverlapsFunction
                | RefuseReason::Immovable
                | RefuseReason::IndirectJump
                | RefuseReason::DataInCode)
        );
        if avoidable && let Some(tactic) = self.join(carrier, point) {
            *outcome = Ok(tactic);
        }
        avoidable && outcome.is_err()
    }

    /// Where `outcome` is a refusal that more effort can avoid, makes that effort.
    fn last_resort(&mut self, at: u64, point: ProbePoint, way: Grow, outcome: &mut Outcome) {
        if !self.is_open(at, point, outcome) {
            return;
        }
        let point = Some(point);
        if self.spring(at, point, way, Strays::Forbid) {
            *outcome = Ok(Tactic::Springboard);
            return;
        }
        if self.ground.flow.doubt.is_some() {
            return;
        }
        // An exit can also grow over the block after it, which is always jumped to.
        let mut windows = self.windows(at, way, JUMP);
        if way == Grow::Backward {
            windows.extend(self.windows(at, Grow::Forward, JUMP));
        }
        for (window, tactic) in windows {
            if let Ok(tactic) = self.open(window, tactic, point, Strays::Lead) {
                *outcome = Ok(tactic);
                return;
            }
        }
        if self.spring(at, point, way, Strays::Lead) {
            *outcome = Ok(Tactic::Springboard);
        }
    }

    /// The same with puns, which not every process has room for.
    fn very_last_resort(&mut self, at: u64, point: ProbePoint, way: Grow, outcome: &mut Outcome) {
        if self.is_open(at, point, outcome) && self.pun(at, Some(point), way) {
            *outcome = Ok(Tactic::Pun);
        }
    }

    /// Tries a springboard.
    fn spring(&mut self, at: u64, point: Option<ProbePoint>, way: Grow, strays: Strays) -> bool {
        for (window, _) in self.windows(at, way, SHORT_JUMP) {
            if !self.sites.is_clear(&window) {
                continue;
            }
            let Ok(found) = self.ground.displace(&window) else {
                continue;
            };
            let is_placed = self.attempt(|ladder| {
                let Some(landing) = ladder.landing(&window) else {
                    return false;
                };
                let draft = Draft {
                    window,
                    tactic: Tactic::Springboard,
                    points: point.into_iter().collect(),
                    landing: Some(landing),
                    displaced: found.displaced,
                    strays: found.strays,
                };
                ladder.place(draft, strays)
            });
            if is_placed {
                return true;
            }
        }
        false
    }
}
