//! The ladder: tries the tactics for each probe point in turn and takes the first that is proven
//! safe.

use std::ops::Range;
use std::sync::Arc;

use super::check::Ground;
use super::draft::Draft;
use super::grow::Grow;
use super::point::{Allowed, Effect, Effects, ProbePoint, Tactic};
use super::refuse::{RefuseReason, unhookable};
use super::sites::Sites;
use crate::flow::{Flow, Leave, LeaveKind, ModuleContext};
use crate::image::Image;
use crate::inside::Region;
use crate::isa::{Control, Insn, JUMP, SHORT_JUMP};

/// The maximum length of a joined window, in bytes. Each join examines all its windows again, so
/// the length must be bounded. The longest window in the functions of libc, libcrypto, Python and
/// gdb has 17 bytes.
const LONGEST_WINDOW: u64 = 256;

type Outcome = Result<Tactic, RefuseReason>;

/// Places the probe points of one function, one by one.
pub struct Ladder<'a, 'd> {
    pub(super) ground: Ground<'a, 'd>,
    /// The sites placed so far.
    pub(super) sites: Sites,
    /// True if punned jumps are allowed.
    pub(super) puns: bool,
    /// The regions that [`Effect::Enter`] names by their numbers.
    pub(super) regions: &'a [Arc<Region>],
}

/// The outcomes for the probe points of a function.
pub struct Outcomes {
    /// The outcome of the entry, even if it is not wanted.
    pub entry: Outcome,
    /// The outcomes of the function's exits, in the order of [`Flow::leaves`]; empty if exits are
    /// not wanted.
    pub exits: Vec<Outcome>,
    /// The outcomes of the wanted points, in their order.
    pub points: Vec<Outcome>,
}

/// The treatment of the function's own jumps into the middle of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strays {
    /// Jumps into the middle forbid the window, unless another site displaces them already.
    Forbid,
    /// Jumps into the middle are patched too, and diverted to a copy of their targets.
    Lead,
}

impl<'a, 'd> Ladder<'a, 'd> {
    /// A ladder for the function of `flow`, without sites.
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
            regions: &[],
        }
    }

    /// Places all wanted probe points. The cheap tactics are tried for every point before those
    /// that use up room of other points. If a jump to the entry cannot be diverted past the entry's
    /// hook, the entry is refused, and the other points are placed without it.
    pub fn climb(&mut self, want: Effects, wanted: &[ProbePoint]) -> Outcomes {
        let flow = self.ground.flow;
        let entry = ProbePoint {
            at: flow.entry,
            effect: Effect::Entry,
        };
        let mut outcome = self.grow(entry.at.0, Grow::Forward, Some(entry));
        // For a function that is too short, the landing marker before its entry may add enough
        // room.
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
        // A conditional jump reaches its trampoline only when it is taken.
        let flow = self.ground.flow;
        let index = flow.index_of(at);
        let always = index.is_some_and(|i| flow.insns[i].control() == Control::Jump);
        if (always || point.effect.is_if_taken())
            && let Some(Ok(tactic)) = self.retarget(at, Some(point))
        {
            return Ok(tactic);
        }
        self.grow(at, Grow::Around, Some(point))
    }

    /// The reason why no hook can precede the instruction at `at`, with any tactic; `None` if one
    /// can.
    fn unpointable(&self, at: u64) -> Option<RefuseReason> {
        let flow = self.ground.flow;
        let begins = flow.ranges[0].start.0;
        if flow.index_of(at).is_none() {
            Some(RefuseReason::NotAnInstruction)
        } else if !flow.is_certain(at) {
            Some(RefuseReason::DataInCode)
        } else if at == begins && at != flow.entry.0 && flow.is_target(at) {
            // Jumps to the landing marker before the entry are diverted to the entry itself.
            Some(RefuseReason::LoopToEntry)
        } else {
            None
        }
    }

    /// The address of the instruction to displace so that a hook for `leave` can run.
    ///
    /// It is the leaving instruction. If the function falls through into the next one, it is the
    /// last instruction before that.
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

    /// Adds `point` to a site that already displaces the instruction at `carrier`. Returns the
    /// site's tactic; `None` if there is no such site, or if a hook in it would not always run.
    fn join(&mut self, carrier: u64, point: ProbePoint) -> Option<Tactic> {
        let serves = |site: &Draft| site.serves(carrier, point);
        let site = self.sites.join(carrier, point, serves)?;
        Some(site.tactic)
    }

    /// Makes a site that rewrites the displacement of the near jump at `at`, and returns the
    /// outcome. `None` if there is no near jump at `at`.
    fn retarget(&mut self, at: u64, point: Option<ProbePoint>) -> Option<Outcome> {
        let flow = self.ground.flow;
        let insn = &flow.insns[flow.index_of(at)?];
        if !insn.is_long_jump() {
            return None;
        }
        Some(self.open(at..insn.end(), Tactic::Retarget, point, Strays::Forbid))
    }

    /// Tries windows over whole instructions around `at`, then the padding after it. Otherwise
    /// returns the reason of the refusal.
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

    /// Makes a site from `window`, merged with the sites that it overlaps. Otherwise returns the
    /// reason why that is unsafe.
    fn open(
        &mut self,
        window: Range<u64>,
        tactic: Tactic,
        point: Option<ProbePoint>,
        strays: Strays,
    ) -> Outcome {
        let mut draft = self.joined(window, tactic, point)?;
        // Landings and bytes that puns depend on cannot be merged, so they must not overlap.
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

    /// Runs `change` and keeps its effect if it returns true and the sites still have a safe write
    /// order. Otherwise undoes it and returns false.
    pub(super) fn attempt(&mut self, change: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.sites.mark();
        let is_kept = change(self) && self.is_orderly(before);
        if !is_kept {
            self.sites.roll_back(before);
        }
        is_kept
    }

    /// Adds `draft`. True if all of the function's jumps into its middle are displaced or can be.
    pub(super) fn place(&mut self, draft: Draft, strays: Strays) -> bool {
        let wanting = draft.strays.clone();
        self.sites.insert(draft);
        wanting.into_iter().all(|at| match strays {
            Strays::Forbid => self.sites.holding(at).is_some(),
            Strays::Lead => self.lead(at),
        })
    }

    /// A draft of `window` merged with the sites that it overlaps, including their points.
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

    /// Sets the instructions that `draft` displaces. Fails if one of its points is not among them.
    fn displace(&self, draft: &mut Draft) -> Result<(), RefuseReason> {
        match draft.tactic {
            // Only the displacement of the jump changes, so nothing moves.
            Tactic::Retarget => draft.displaced = self.ground.alone(draft.window.start)?,
            _ => {
                let found = self.ground.displace(&draft.window)?;
                (draft.displaced, draft.strays) = (found.displaced, found.strays);
            }
        }
        // Padding that is never executed is in the window, but not in the trampoline.
        let is_point = |p: &&ProbePoint| p.effect.is_inside();
        let mut asked = draft.points.iter().filter(is_point);
        if asked.all(|p| draft.serves(p.at.0, *p)) {
            Ok(())
        } else {
            Err(RefuseReason::DataInCode)
        }
    }

    /// Makes the jump at `at` divertible by displacing it. True if that succeeds.
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

    /// True if the point at `carrier` was refused for a reason that more effort can avoid.
    ///
    /// First tries to join a site that has since been made for another point. If that succeeds,
    /// updates `outcome` and returns false.
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

    /// Tries springboards, and windows whose strays are diverted, if more effort can avoid the
    /// refusal in `outcome`. Updates `outcome` if one succeeds.
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
        // An exit's window can also grow over the next block, which is reached only by jumps.
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

    /// Tries puns, for which not every process has room, if more effort can avoid the refusal in
    /// `outcome`. Updates `outcome` if one succeeds.
    fn very_last_resort(&mut self, at: u64, point: ProbePoint, way: Grow, outcome: &mut Outcome) {
        if self.is_open(at, point, outcome) && self.pun(at, Some(point), way) {
            *outcome = Ok(Tactic::Pun);
        }
    }

    /// Tries a springboard for the instruction at `at`. True if that succeeds.
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
