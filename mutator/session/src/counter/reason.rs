//! Why something is not counted.

use std::fmt;

/// Why a name stands for no event that a program's threads can count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEvent {
    /// There is none.
    Unknown,
    /// It is the kernel that counts it.
    OfKernel,
    /// It is to be counted elsewhere than in user mode.
    Modifier(String),
    /// A part of it says nothing that a counter could be told.
    Term {
        /// The part.
        term: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// The machine or the kernel does not have it.
    NotHere(NotHere),
}

/// Why a counter cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotHere {
    /// The kernel refuses the event, for a cause.
    Refused(String),
    /// It counts it, but has no counter for it that programs can read.
    Unreadable,
    /// It forbids them to read any.
    Forbidden,
}

/// Whether the processor's counters may be read by programs: 0 where not.
pub(super) const RDPMC: &str = "/sys/bus/event_source/devices/cpu/rdpmc";

impl fmt::Display for NoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such metric"),
            Self::OfKernel => {
                f.write_str("it is the kernel that counts it, and not a counter of the processor")
            }
            Self::Modifier(modifier) => write!(
                f,
                "there is no modifier `{modifier}`: what is counted is user mode"
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
            Self::Unreadable => f.write_str("the kernel alone can read it"),
            Self::Forbidden => write!(f, "programs may read no counters ({RDPMC} is 0)"),
        }
    }
}
