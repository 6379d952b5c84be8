//! The place where a function is patched.

use std::ops::Range;

use crate::addr::Svma;
use crate::isa::{Displaced, Pun};

use super::point::{ProbePoint, Tactic};

/// Bytes that are overwritten so that control comes to one trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The bytes that are overwritten: whole instructions and padding. With
    /// [`Tactic::Retarget`], the jump, of which only the displacement changes.
    pub window: Range<Svma>,
    /// How control is led away.
    pub tactic: Tactic,
    /// The probe points whose hooks the trampoline contains, in the order in which these run.
    pub points: Vec<ProbePoint>,
    /// The bytes in padding, or in the unused rest of another site's window, that take the long
    /// jump of a springboard.
    pub landing: Option<Range<Svma>>,
    /// What the jump depends on beyond the window, with [`Tactic::Pun`].
    pub pun: Option<Pun>,
    /// Parts of `window` that other sites' landings take: they are not this site's to write.
    pub(crate) hosted: Vec<Range<Svma>>,
    pub(crate) displaced: Vec<Displaced>,
    /// The original bytes of `window` and of `landing`.
    pub(crate) old: [Vec<u8>; 2],
    /// Jumps to these addresses mean the entry: from the function's start to its entry point.
    pub(crate) entry: Range<Svma>,
    /// What displaced jumps lead to that stands in another site's window.
    pub(crate) rows: Vec<Row>,
}

/// A copy of the rest of another site's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Its instructions. The first is where jumps lead to.
    pub(crate) displaced: Vec<Displaced>,
    /// The probe points among them, but never an entry: a jump is no call.
    pub(crate) points: Vec<ProbePoint>,
    /// Where that window ends.
    pub(crate) resume: Svma,
}

impl Site {
    /// Does the window end with a call? Its return address is the window's end. What stands before
    /// that address is no call any more. A stack walker that checks for one has to know.
    pub fn ends_in_call(&self) -> bool {
        self.tactic != Tactic::Retarget && self.displaced.last().is_some_and(Displaced::is_call)
    }
}
