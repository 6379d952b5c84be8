//! A site during planning.

use std::ops::Range;

use super::point::{Effect, ProbePoint, Tactic};
use crate::isa::{Displaced, JUMP};

/// A site during planning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The addresses of the bytes that are overwritten.
    pub window: Range<u64>,
    /// The method that diverts control.
    pub tactic: Tactic,
    /// The probe points whose hooks the trampoline contains, in any order.
    pub points: Vec<ProbePoint>,
    /// The address of the long jump of a springboard; `None` with other tactics.
    pub landing: Option<u64>,
    /// The instructions in the window, which are moved.
    pub displaced: Vec<Displaced>,
    /// The addresses of the function's jumps from outside into the middle of the window. Other
    /// sites displace them.
    pub strays: Vec<u64>,
}

impl Draft {
    /// The bytes after a punned jump that are part of its encoding; `None` with other tactics.
    pub fn depends(&self) -> Option<Range<u64>> {
        (self.tactic == Tactic::Pun).then(|| self.window.end..self.window.start + JUMP)
    }

    /// True if a hook for `point` in this site runs each time that it must. `carrier` is the
    /// address of the instruction in the window that carries the hook.
    pub fn serves(&self, carrier: u64, point: ProbePoint) -> bool {
        let retargeted = self.tactic == Tactic::Retarget;
        match point.effect {
            // The trampoline of a retargeted jump contains no code after the jump.
            Effect::Exit | Effect::TailExit(_) => !retargeted || carrier == point.at.0,
            // A conditional jump that is not taken does not reach its trampoline.
            Effect::Entry
            | Effect::Point(_)
            | Effect::Count(..)
            | Effect::Path(..)
            | Effect::Span(..)
            | Effect::Enter(_) => self.displaced.iter().any(|d| {
                let is_run = !retargeted || !d.falls_through() || point.effect.is_if_taken();
                d.at == point.at && is_run
            }),
        }
    }
}
