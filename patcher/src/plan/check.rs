//! Safety checks for overwriting a window.

use std::ops::Range;

use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext, foreign_short_branch};
use crate::image::Image;
use crate::isa::{Displaced, Immovable, Insn};
#[cfg(test)]
use crate::looks;

use super::refuse::RefuseReason;

/// The input of all checks.
#[derive(Clone, Copy)]
pub struct Ground<'a, 'd> {
    pub image: &'a Image<'d>,
    pub context: &'a ModuleContext<'a>,
    pub flow: &'a Flow,
    /// True if calls may be moved.
    pub moved_calls: bool,
}

/// The consequences of overwriting a window.
#[derive(Debug)]
pub struct Displacement {
    /// The instructions in the window, which are moved.
    pub displaced: Vec<Displaced>,
    /// The addresses of jumps of the function from outside into the middle of the window. Each must
    /// be diverted to a copy of its target.
    pub strays: Vec<u64>,
}

impl From<Immovable> for RefuseReason {
    fn from(immovable: Immovable) -> Self {
        match immovable {
            Immovable::Special => Self::Immovable,
            Immovable::Undecodable => Self::Undecodable,
        }
    }
}

impl Ground<'_, '_> {
    /// Returns the instructions that overwriting `window` displaces, or the reason why that is
    /// unsafe.
    ///
    /// The caller must have proven that any bytes of the window outside the function's instructions
    /// are padding.
    pub fn displace(&self, window: &Range<u64>) -> Result<Displacement, RefuseReason> {
        #[cfg(test)]
        looks::add((window.end - window.start) as usize);
        let mut strays = Vec::new();
        let insns = self.executed(self.flow.insns_in(window).1);
        let displaced = self.movable(insns)?;
        if let (Some(doubt), 2..) = (self.flow.doubt, insns.len()) {
            return Err(doubt.into());
        }
        if insns.first().map(Insn::at) != Some(window.start) {
            return Err(RefuseReason::DataInCode);
        }
        // Data may be read even if it is never executed.
        if !insns.iter().all(|i| self.flow.may_be_moved(i)) {
            return Err(RefuseReason::DataInCode);
        }
        self.outside_of_sequences(window)?;
        if insns.last().is_some_and(|last| last.end() > window.end) {
            return Err(RefuseReason::TooShort);
        }
        for insn in insns {
            if insn.is_call() && (insn.end() != window.end || !self.moved_calls) {
                return Err(RefuseReason::CallInWindow);
            }
        }
        for at in window.start + 1..window.end {
            self.arrival(window, insns, at, &mut strays)?;
        }
        if foreign_short_branch(self.image, self.flow, window) {
            return Err(RefuseReason::BranchIntoWindow);
        }
        Ok(Displacement { displaced, strays })
    }

    /// `insns` without trailing padding inside the function.
    fn executed<'i>(&self, mut insns: &'i [Insn]) -> &'i [Insn] {
        if let Some(end) = insns.iter().rposition(|insn| !insn.is_padding())
            && insns[end].ends_block()
            && insns[end + 1..]
                .iter()
                .all(|i| !self.flow.is_target(i.at()))
        {
            insns = &insns[..=end];
        }
        insns
    }

    /// The instruction at `at`, for a site that changes only its displacement, or the reason why
    /// the change is unsafe.
    pub fn alone(&self, at: u64) -> Result<Vec<Displaced>, RefuseReason> {
        self.outside_of_sequences(&(at..at + 1))?;
        if !self.flow.is_certain(at) {
            return Err(RefuseReason::DataInCode);
        }
        self.movable(self.flow.insns_in(&(at..at + 1)).1)
    }

    /// Refuses code in a restartable sequence: the kernel recognizes the sequence by its address.
    fn outside_of_sequences(&self, window: &Range<u64>) -> Result<(), RefuseReason> {
        let inside = Svma(window.start)..Svma(window.end);
        let mut sequences = self.context.restartable.iter();
        if sequences.any(|r| r.start < inside.end && inside.start < r.end) {
            Err(RefuseReason::RestartableSequence)
        } else {
            Ok(())
        }
    }

    fn movable(&self, insns: &[Insn]) -> Result<Vec<Displaced>, RefuseReason> {
        insns
            .iter()
            .map(|insn| {
                let bytes = self.image.bytes(Svma(insn.at()), insn.len() as u64);
                let bytes = bytes.ok_or(RefuseReason::Undecodable)?;
                Ok(Displaced::of(insn, bytes)?)
            })
            .collect()
    }

    /// Checks the arrivals at `at`, an address inside `window`.
    ///
    /// Arrivals from within the window are safe. The function's direct jumps from outside are added
    /// to `strays`. Any other possible arrival is refused.
    fn arrival(
        &self,
        window: &Range<u64>,
        insns: &[Insn],
        at: u64,
        strays: &mut Vec<u64>,
    ) -> Result<(), RefuseReason> {
        let Self {
            flow,
            context,
            image,
            ..
        } = self;
        let to = Svma(at);
        let first = flow.branches.partition_point(|b| b.to < at);
        let branches = flow.branches[first..].iter().take_while(|b| b.to == at);
        let starts = insns.iter().any(|i| i.at() == at);
        if flow.is_mark(at) || branches.clone().count() > 0 && !starts {
            return Err(RefuseReason::BranchIntoWindow);
        }
        // The scans over the module read every byte as if an instruction began there. In this
        // function the instructions are known. A branch can only target the start of one, or the
        // byte after a lock prefix, to which single-threaded programs jump.
        let meant = !flow.contains(at) || starts || insns.iter().any(|i| i.is_unlocked_at(at));
        if meant {
            let near = branches.clone().filter(|b| self.is_near(b.from)).count();
            let known = context.arrivals(image, to) == near;
            if !known || context.is_taken(to) {
                return Err(RefuseReason::BranchIntoWindow);
            }
        }
        let other = image.functions().containing(to);
        if other.is_some_and(|f| f.start == to) {
            return Err(RefuseReason::OverlapsFunction);
        }
        strays.extend(
            branches
                .map(|b| b.from)
                .filter(|from| !window.contains(from)),
        );
        Ok(())
    }

    fn is_near(&self, at: u64) -> bool {
        let insn = self.flow.index_of(at).map(|index| &self.flow.insns[index]);
        insn.is_some_and(Insn::is_long_jump)
    }
}
