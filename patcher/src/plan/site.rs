//! A place at which a function is patched.

use std::ops::Range;
use std::sync::Arc;

use crate::addr::Svma;
use crate::inside::Region;
use crate::isa::{Displaced, Pun};

use super::point::{ProbePoint, Tactic};

/// Bytes that are overwritten to divert control to one trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The bytes that are overwritten: whole instructions and padding. With [`Tactic::Retarget`],
    /// the jump, which changes in its displacement only.
    pub window: Range<Svma>,
    /// The method that diverts control.
    pub tactic: Tactic,
    /// The probe points whose hooks the trampoline contains, in the order in which the hooks run.
    pub points: Vec<ProbePoint>,
    /// The bytes for the long jump of a springboard; `None` with other tactics. They are in
    /// padding, or unused bytes of another site's window.
    pub landing: Option<Range<Svma>>,
    /// The bytes beyond the window that the jump depends on, with [`Tactic::Pun`]; otherwise
    /// `None`.
    pub pun: Option<Pun>,
    /// Parts of `window` that the landings of other sites occupy. This site does not write them.
    pub(crate) hosted: Vec<Range<Svma>>,
    /// The instructions in the window, which the trampoline contains instead. With
    /// [`Tactic::Retarget`], the jump, which stays in place.
    pub(crate) displaced: Vec<Displaced>,
    /// The original bytes of `window` and of `landing`; the latter are empty without a landing.
    pub(crate) old: [Vec<u8>; 2],
    /// The addresses that count as the entry if a jump leads to them. The range is from the
    /// function's start to its entry point, inclusive.
    pub(crate) entry: Range<Svma>,
    /// Copies of the targets of displaced jumps that are in other sites' windows.
    pub(crate) rows: Vec<Row>,
    /// The regions that the trampoline has copies of, each with its number.
    pub(crate) regions: Vec<(u32, Arc<Region>)>,
    /// The number of the session's counter that is number 0 in the regions.
    pub(crate) counters_from: u32,
}

/// A copy of the rest of another site's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The instructions of the copy. Jumps lead to the first.
    pub(crate) displaced: Vec<Displaced>,
    /// The probe points among the copied instructions. An entry is never one of them, because a
    /// jump is not a call.
    pub(crate) points: Vec<ProbePoint>,
    /// The end of the other site's window, where the copy continues.
    pub(crate) resume: Svma,
}

impl Site {
    /// True if the window ends with a call.
    ///
    /// The call's return address is the end of the window, but the patched bytes before that
    /// address no longer encode a call. A stack walker that checks for a call must be aware of
    /// this.
    pub fn ends_in_call(&self) -> bool {
        self.tactic != Tactic::Retarget && self.displaced.last().is_some_and(Displaced::is_call)
    }
}
