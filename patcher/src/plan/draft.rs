//! A site in the making.

use std::ops::Range;

use super::point::{Effect, ProbePoint, Tactic};
use crate::isa::{Displaced, JUMP};

/// A site in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The bytes after a punned jump that are a part of it.
    pub fn depends(&self) -> Option<Range<u64>> {
        (self.tactic == Tactic::Pun).then(|| self.window.end..self.window.start + JUMP)
    }

    /// Does a hook for `point`, carried by the instruction at `carrier` in the window, run whenever it
    /// has to?
    pub fn serves(&self, carrier: u64, point: ProbePoint) -> bool {
        let retargeted = self.tactic == Tactic::Retarget;
        match point.effect {
            // A retargeted jump has nothing after it in its trampoline.
            Effect::Exit | Effect::TailExit(_) => !retargeted || carrier == point.at.0,
            // And none comes there that is not taken.
            Effect::Entry | Effect::Point(_) => self
                .displaced
                .iter()
                .any(|d| d.at == point.at && !(retargeted && d.falls_through())),
        }
    }
}
