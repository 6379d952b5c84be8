//! The ladder: for each probe point the first tactic that is proven safe.

use std::ops::Range;

use iced_x86::Instruction;

use crate::flow::{Flow, Leave, LeaveKind, ModuleContext};
use crate::image::Image;
use crate::relocate::Displaced;

use super::check::{Displacement, Ground};
use super::grow::Grow;
use super::padding::JUMP;
use super::point::{Allowed, Effect, Effects, ProbePoint, Tactic};
use super::refuse::{RefuseReason, unhookable};

/// A short jump.
pub const SHORT: u64 = 2;

type Outcome = Result<Tactic, RefuseReason>;

/// Places the probe points of one function, one after the other.
pub struct Ladder<'a, 'd> {
    pub(super) ground: Ground<'a, 'd>,
    pub(super) sites: Vec<Draft>,
    /// May jumps be punned?
    pub(super) puns: bool,
}

/// A site in the making.
#[derive(Clone, Debug)]
pub struct Draft {
    pub window: Range<u64>,
    pub tactic: Tactic,
    pub points: Vec<ProbePoint>,
    pub landing: Option<u64>,
    pub displaced: Vec<Displaced>,
    /// The function's jumps from outside into the window's middle. Other sites displace them.
    pub strays: Vec<u64>,
}

impl Draft {
    /// The bytes behind a punned jump that are a part of it.
    pub fn depends(&self) -> Option<Range<u64>> {
        (self.tactic == Tactic::Pun).then(|| self.window.end..self.window.start + JUMP)
    }

    /// Does it neither change nor depend on any of these bytes?
    pub fn is_clear(&self, range: &Range<u64>) -> bool {
        let landing = self.landing.map(|at| at..at + JUMP);
        std::iter::once(self.window.clone())
            .chain(landing)
            .chain(self.depends())
            .all(|own| own.end <= range.start || range.end <= own.start)
    }

    /// Does a hook for `point`, carried by the instruction at `carrier` in the window, run whenever it
    /// has to?
    fn serves(&self, carrier: u64, point: ProbePoint) -> bool {
        let retargeted = self.tactic == Tactic::Retarget;
        match point.effect {
            // A retargeted jump has nothing behind it in its trampoline.
            Effect::Exit | Effect::TailExit => !retargeted || carrier == point.at.0,
            // And none comes there that is not taken.
            Effect::Entry | Effect::Point(_) => self
                .displaced
                .iter()
                .any(|d| d.at == point.at && !(retargeted && d.falls_through())),
        }
    }
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
            sites: Vec::new(),
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
        let always = flow
            .index_of(at)
            .is_some_and(|i| flow.insns[i].is_jmp_near());
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
                let behind = flow.insns.partition_point(|i| i.ip() < leave.at.0);
                flow.insns[..behind]
                    .last()
                    .map_or(leave.at.0, Instruction::ip)
            }
            _ => leave.at.0,
        }
    }

    /// Adds `point` to a site that displaces the instruction at `carrier` anyway.
    fn join(&mut self, carrier: u64, point: ProbePoint) -> Option<Tactic> {
        let site = self
            .sites
            .iter_mut()
            .find(|s| s.window.contains(&carrier))?;
        if !site.serves(carrier, point) {
            return None;
        }
        site.points.push(point);
        Some(site.tactic)
    }

    /// Rewrites the displacement of the near jump at `at`; `None` if it is not one.
    fn retarget(&mut self, at: u64, point: Option<ProbePoint>) -> Option<Outcome> {
        let flow = self.ground.flow;
        let insn = &flow.insns[flow.index_of(at)?];
        if !insn.is_jmp_near() && !insn.is_jcc_near() {
            return None;
        }
        Some(self.open(at..insn.next_ip(), Tactic::Retarget, point, Strays::Forbid))
    }

    /// Tries windows over whole instructions around `at`, then the padding behind it.
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
        let mut draft = Draft {
            window: window.clone(),
            tactic,
            points: point.into_iter().collect(),
            landing: None,
            displaced: Vec::new(),
            strays: Vec::new(),
        };
        let overlaps = |s: &Draft, w: &Range<u64>| s.window.start < w.end && w.start < s.window.end;
        // Joined windows can overlap further ones.
        loop {
            let union = self
                .sites
                .iter()
                .filter(|s| overlaps(s, &draft.window))
                .fold(draft.window.clone(), |w, s| {
                    w.start.min(s.window.start)..w.end.max(s.window.end)
                });
            if union == draft.window {
                break;
            }
            draft.window = union;
        }
        for site in self.sites.iter().filter(|s| overlaps(s, &draft.window)) {
            if site.landing.is_some() {
                return Err(RefuseReason::TooShort);
            }
            draft.points.extend(&site.points);
            if site.window.start < window.start || draft.tactic == Tactic::Retarget {
                draft.tactic = Tactic::Window;
            }
        }
        // What is not joined stays clear: landings, and what puns depend on.
        let joined = |s: &Draft| overlaps(s, &draft.window);
        let clear = |s: &Draft| joined(s) || s.is_clear(&draft.window);
        if !self.sites.iter().all(clear) {
            return Err(RefuseReason::TooShort);
        }
        match draft.tactic {
            // Nothing but the displacement changes, so nothing is displaced.
            Tactic::Retarget => draft.displaced = self.ground.alone(draft.window.start)?,
            _ => {
                Displacement {
                    displaced: draft.displaced,
                    strays: draft.strays,
                } = self.ground.displace(&draft.window)?;
            }
        }
        // Padding that nothing executes is in the window, but not in the trampoline.
        let is_point = |p: &&ProbePoint| matches!(p.effect, Effect::Point(_));
        let mut asked = draft.points.iter().filter(is_point);
        if !asked.all(|p| draft.serves(p.at.0, *p)) {
            return Err(RefuseReason::DataInCode);
        }
        let tactic = draft.tactic;
        let wanting = draft.strays.clone();
        let before = self.sites.clone();
        self.sites.retain(|s| !overlaps(s, &draft.window));
        self.sites.push(draft);
        if self.settle(wanting, strays) && self.is_orderly() {
            Ok(tactic)
        } else {
            self.sites = before;
            Err(RefuseReason::BranchIntoWindow)
        }
    }

    /// Are all of the function's jumps at `wanting` displaced, or can they be?
    pub(super) fn settle(&mut self, wanting: Vec<u64>, strays: Strays) -> bool {
        wanting.into_iter().all(|at| match strays {
            Strays::Forbid => self.sites.iter().any(|s| s.window.contains(&at)),
            Strays::Lead => self.lead(at),
        })
    }

    /// Makes the jump at `at` one that can be led elsewhere, by displacing it.
    fn lead(&mut self, at: u64) -> bool {
        if self.sites.iter().any(|s| s.window.contains(&at)) {
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
        // An exit can also grow over the block behind it, which is always jumped to.
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
        for (window, _) in self.windows(at, way, SHORT) {
            if !self.sites.iter().all(|s| s.is_clear(&window)) {
                continue;
            }
            let Ok(found) = self.ground.displace(&window) else {
                continue;
            };
            let before = self.sites.clone();
            if let Some(landing) = self.landing(&window) {
                self.sites.push(Draft {
                    window,
                    tactic: Tactic::Springboard,
                    points: point.into_iter().collect(),
                    landing: Some(landing),
                    displaced: found.displaced,
                    strays: found.strays.clone(),
                });
                if self.settle(found.strays, strays) && self.is_orderly() {
                    return true;
                }
            }
            self.sites = before;
        }
        false
    }
}
