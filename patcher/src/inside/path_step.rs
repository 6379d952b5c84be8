//! What the hooks of paths do, and where they find the activation.

use crate::addr::Svma;
use crate::flow::{Base, FrameBefore};
use crate::isa::{PathKey, PathRow};

use super::counter::Transfer;
use super::liveness::Free;
use super::numbering::Action;

/// The canonical frame address of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameAddress {
    /// True if it is relative to the frame pointer; else to the stack pointer.
    pub by_fp: bool,
    /// The distance from that register, in bytes.
    pub cfa: i32,
}

impl FrameAddress {
    /// The key of the activation. `first` is the number of the function's first counter.
    pub(crate) fn key(self, first: u32) -> PathKey {
        PathKey {
            by_fp: self.by_fp,
            key: self.cfa.wrapping_add(16 * first as i32),
            first,
        }
    }
}

impl From<FrameBefore> for FrameAddress {
    fn from(before: FrameBefore) -> Self {
        Self {
            by_fp: before.base == Base::FramePointer,
            cfa: before.frame.cfa,
        }
    }
}

/// The header of a loop, before which an activation may be on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathHeader {
    /// The address of its first instruction.
    pub at: Svma,
    /// Where the activation's frame is.
    pub frame: FrameAddress,
    /// The number of the function's first counter.
    pub first: u32,
    /// The number of paths.
    pub paths: u64,
    /// What may have to be added to the sum here to get the number of a path: the lowest and the
    /// highest number. Modulo 2^64.
    pub to_add: (u64, u64),
}

/// What a hook of a path or of a loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathStep {
    /// Hooks at the same instruction run in the order of these numbers.
    pub number: u32,
    /// The transfers of control that run the hook.
    pub transfer: Transfer,
    /// The change of the path sum.
    pub action: Action,
    /// The registers and flags that the hook may overwrite.
    pub free: Free,
    /// Where the activation's frame is.
    pub frame: FrameAddress,
    /// The number of the function's first counter.
    pub first: u32,
    /// The number of paths.
    pub paths: u64,
    /// The counters of the numbers.
    pub counters: CountersKind,
    /// The row that times the paths. `None` if they are only counted.
    pub timed: Option<TimedPaths>,
}

/// The arguments of the hooks of a timed path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimedPaths {
    /// The number of the row that times the paths.
    pub number: u32,
    /// Where the activation's frame is at the hook, as the runtime has it.
    pub standing: u64,
}

/// How the number of a path, or of the trips of a loop, is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CountersKind {
    /// Each number has a counter.
    Each,
    /// The counters are a hash table.
    Table,
    /// Each power of two has a counter, for the numbers from it to the next one.
    Histogram,
}

impl PathStep {
    /// True if a path ends at the hook.
    pub fn ends(&self) -> bool {
        matches!(self.action, Action::End(_) | Action::Restart { .. })
    }

    /// The row for the stub.
    pub(crate) fn row(&self) -> PathRow {
        let (kind, add, start) = match self.action {
            Action::Start(start) => (PathRow::BEGINS, 0, start),
            Action::Add(add) => (PathRow::ADDS, add, 0),
            Action::End(add) => (PathRow::ENDS, add, 0),
            Action::Restart { end, start } => (PathRow::RESTARTS, end, start),
        };
        PathRow {
            kind,
            counters: match self.counters {
                CountersKind::Each => PathRow::EACH,
                CountersKind::Table => PathRow::TABLE,
                CountersKind::Histogram => PathRow::HISTOGRAM,
            },
            key: self.frame.key(self.first),
            paths: self.paths,
            add,
            start,
            standing: self.timed.map_or(0, |timed| timed.standing),
        }
    }
}
