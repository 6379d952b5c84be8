//! The roles of functions and instructions that have probes, and the states of these probes.

use abi::probe::{Children, Kind, SPAN};
use patcher::plan::Effects;
use serde::{Deserialize, Serialize};

/// Why a function or an instruction has probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The calls of the function are measured.
    Measured,
    /// The function is not measured. A call of it reports an event.
    Witness(Witness),
    /// The exits end calls that a tail call has lent to this function. The entry has no probe.
    Ender,
    /// The instruction is counted. Its size is 0, and its values are the frame of its function, as
    /// in [`abi::point`].
    Point,
    /// A part of the calls of the function is measured by itself: a loop. The address is the start
    /// of the loop, the size is 0, and the values are the frame of the function, as for a point.
    Span,
    /// The edges of the function are counted. A carrier has the hooks.
    Edges,
    /// The sites hold the hooks of points and counters, and those of their function if it is
    /// measured too.
    Carrier,
}

/// The event that a call of an unmeasured function reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Witness {
    /// Calls below its caller's frame end.
    Frames,
    /// Calls below the frame of the `jmp_buf` in its first argument end.
    Jump,
    /// All calls of the stack end: the thread exits.
    End,
    /// A stack is moved between the entry and the exits.
    Moves,
    /// Another stack replaces the one that it was entered on, between the entry and the exits.
    Switches,
    /// Libraries were loaded or unloaded.
    Loads,
    /// Unwind entries that the program has registered become invalid.
    TakesBack,
    /// The function may create a child process.
    Forks(Forking),
    /// The program may execute another one.
    Execs,
    /// The process may exit.
    Exits,
    /// The process may check for leaks as at its exit.
    Checks,
}

/// The children that a function may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forking {
    /// Each call of the function creates a child that shares the memory of the process.
    Always,
    /// Like `Always`, if the flags in its third argument include CLONE_VM and CLONE_VFORK.
    Clone,
    /// Like `Always`, if the flags that its first argument points to include CLONE_VM and
    /// CLONE_VFORK.
    Clone3,
    /// Children with a copy of the memory return from its exits. The entry has no probe.
    Copies,
}

impl Role {
    /// True if users see a function in this role: it was requested by name.
    pub fn is_shown(self) -> bool {
        matches!(
            self,
            Self::Measured | Self::Point | Self::Span | Self::Edges
        )
    }

    /// True if the calls of a function in this role are measured.
    pub fn is_measured(self) -> bool {
        self == Self::Measured
    }

    /// True for an instruction.
    pub fn is_point(self) -> bool {
        self == Self::Point
    }

    /// True if lent calls can end at its exits.
    pub fn sees_returns(self) -> bool {
        self.is_shown() || self == Self::Ender
    }

    /// True if measuring the function also serves the purpose of this role.
    pub fn may_be_measured(self) -> bool {
        self.sees_returns() || self.forking().is_some()
    }

    /// True if a function in this role has the exit hooks of an ender.
    pub fn has_ender_hooks(self) -> bool {
        self == Self::Ender || self.forking() == Some(Forking::Copies)
    }

    /// The event that the function reports. `None` if it is not a witness.
    pub fn witness(self) -> Option<Witness> {
        match self {
            Self::Witness(witness) => Some(witness),
            _ => None,
        }
    }

    /// The kind of children that the function reports. `None` if it reports no children.
    pub fn forking(self) -> Option<Forking> {
        self.witness().and_then(Witness::forking)
    }

    /// The kind and the children in a function's row of the probe table:
    /// [`abi::probe::Probe::kind`]. `measured_forks` are the children of a measured function.
    pub fn probe_kind(self, has_exits: bool, measured_forks: Option<Forking>) -> u8 {
        let kind = match self {
            Self::Measured | Self::Span if has_exits => Kind::Call,
            Self::Measured | Self::Span => Kind::Entry,
            Self::Point | Self::Edges | Self::Carrier => Kind::Point,
            Self::Ender | Self::Witness(Witness::Forks(Forking::Copies)) => Kind::Ender,
            Self::Witness(Witness::Frames) => Kind::Frames,
            Self::Witness(Witness::Jump) => Kind::Jump,
            Self::Witness(Witness::End) => Kind::End,
            Self::Witness(Witness::Moves) => Kind::Moves,
            Self::Witness(Witness::Switches) => Kind::Switches,
            Self::Witness(Witness::Loads) => Kind::Loads,
            Self::Witness(Witness::TakesBack) => Kind::TakesBack,
            Self::Witness(Witness::Forks(_)) => Kind::Forks,
            Self::Witness(Witness::Execs) => Kind::Execs,
            Self::Witness(Witness::Exits) => Kind::Exits,
            Self::Witness(Witness::Checks) => Kind::Checks,
        };
        let children = match self.forking().or(measured_forks) {
            Some(Forking::Always) => Children::Always,
            Some(Forking::Clone) => Children::Clone,
            Some(Forking::Clone3) => Children::Clone3,
            Some(Forking::Copies) | None => Children::Never,
        };
        let span = if self == Self::Span { SPAN } else { 0 };
        kind.with(children) | span
    }
}

impl Witness {
    /// The probe points that the witness needs.
    pub fn effects(self) -> Effects {
        let copies = Self::Forks(Forking::Copies);
        Effects {
            entry: self != copies,
            exits: self == copies || matches!(self, Self::Moves | Self::Switches),
        }
    }

    /// True if the witness is needed in sessions that only count calls.
    pub fn is_for_counts(self) -> bool {
        !self.tells_of_ends()
    }

    /// True if the witness is needed only in sessions that see the ends of calls.
    pub fn tells_of_ends(self) -> bool {
        matches!(
            self,
            Self::Frames | Self::Jump | Self::End | Self::Moves | Self::Switches
        )
    }

    /// The kind of children that the function reports. `None` if it reports no children.
    pub fn forking(self) -> Option<Forking> {
        match self {
            Self::Forks(forking) => Some(forking),
            _ => None,
        }
    }
}

/// The state of a function's probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// The probes are in.
    In,
    /// The probes are out, and may be put in again.
    #[default]
    Out,
    /// The probes are out for good: another entry of the document's functions has the bytes.
    Retired,
}

impl State {
    /// The state after the probes have come in (`on`) or gone out.
    pub fn switched(self, on: bool) -> Self {
        match (self, on) {
            (_, true) => Self::In,
            (Self::In | Self::Out, false) => Self::Out,
            (Self::Retired, false) => Self::Retired,
        }
    }
}

/// The part of a function that has hooks while it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Everything that is laid out for it.
    #[default]
    Whole,
    /// The entry. Its calls are counted, and their ends are not seen.
    Entry,
}
