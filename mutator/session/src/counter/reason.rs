//! Why an event is not counted.

use std::fmt;

/// Why a name is not an event that a program's threads can count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEvent {
    /// There is no such event.
    Unknown,
    /// The kernel counts the event, not the processor.
    OfKernel,
    /// This modifier selects something other than user mode.
    Modifier(String),
    /// A part of it does not configure a counter.
    Term {
        /// The part.
        term: String,
        /// The reason why.
        wrong: &'static str,
    },
    /// This machine or its kernel cannot count it.
    NotHere(NotHere),
}

/// Why a counter is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotHere {
    /// The kernel refuses the event, for this reason.
    Refused(String),
    /// The kernel counts the event, but has no counter that programs can read.
    Unreadable,
    /// The kernel does not let programs read any counters.
    Forbidden,
}

/// A file that contains 0 if programs may not read hardware counters.
pub(super) const RDPMC: &str = "/sys/bus/event_source/devices/cpu/rdpmc";

impl fmt::Display for NoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such metric"),
            Self::OfKernel => {
                f.write_str("it is counted by the kernel, not by a counter of the processor")
            }
            Self::Modifier(modifier) => write!(
                f,
                "there is no modifier `{modifier}`: only user mode is counted"
            ),
            Self::Term { term, wrong } => write!(f, "`{term}` {wrong}"),
            Self::NotHere(not) => not.fmt(f),
        }
    }
}

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(cause) => write!(f, "no counter: {cause}"),
            Self::Unreadable => f.write_str("only the kernel can read it"),
            Self::Forbidden => write!(f, "programs may not read counters ({RDPMC} is 0)"),
        }
    }
}
