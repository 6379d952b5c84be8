//! Errors of session operations.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use abi::filter::MOST_RANGES;
use patcher::Avma;

use super::in_the_way::InTheWay;
use super::refusal::{Refusal, Refused};
use crate::segment::{SegmentError, TooMuch};
use ipath_target::process::headroom::mib;
use ipath_target::process::{Presence, ProcessError, Space, Tid};
use ipath_target::tracee::TraceeError;

/// The error of a session operation.
#[derive(Debug)]
pub enum SessionError {
    /// Finding or reading the process failed.
    Process(ProcessError),
    /// Stopping the process, or a system call in it, failed.
    Tracee(TraceeError),
    /// The segment is missing or unusable.
    Segment(SegmentError),
    /// Reading or writing the target's memory failed: operation, address, cause.
    Memory(&'static str, Avma, std::io::Error),
    /// None of the functions can be instrumented. Contains their names and the reasons.
    Refused(Refused),
    /// None of the functions, which are in, can measure the metrics. Contains their names and the
    /// reasons.
    Unchanged(Refused),
    /// No free address range of this many bytes.
    NoSpace(u64),
    /// Something is in the way of all the functions.
    InTheWay(InTheWay),
    /// A thread blocks SIGTRAP, for its program or for a moment.
    TrapBlocked {
        /// The thread.
        tid: Tid,
        /// True if the block ends within a moment.
        passes: bool,
    },
    /// The process already has a session.
    Exists,
    /// More functions than a session holds, or more breakpoints than its table holds.
    TooMany,
    /// No function matches a pattern that paths must, or must not, pass through.
    NotUnder(String),
    /// Functions that paths must, or must not, pass through have so many inlined copies.
    ManyUnder(usize),
    /// This metric needs system calls, which the runtime must not make here.
    NeedsSystemCalls(String),
    /// A seccomp filter may end the program for a system call that attaching makes.
    MayBeEnded,
    /// The target's memory cgroup has too little memory left.
    LittleMemory {
        /// The folder of the cgroup.
        group: PathBuf,
        /// The bytes left in the cgroup.
        left: u64,
        /// The bytes needed.
        needed: u64,
        /// The bytes that the session may take of those left.
        may: u64,
    },
    /// More metrics than records have room for.
    TooMuch(TooMuch),
    /// None of these functions measures this metric. Contains each function with its metrics.
    NotMeasured(String, Vec<(String, Vec<String>)>),
    /// Only whole functions can be measured, because paths consist of them.
    OnlyFunctions,
    /// The image of the runtime in this program is unusable.
    Image(String),
    /// Something in the target prevents the operation. Contains the reason, for users.
    Held(String),
    /// The target has ended, or become another program.
    Gone(Presence),
    /// The state of the target cannot be determined. Contains the cause.
    Unknown(String),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(error) => error.fmt(f),
            Self::Tracee(error) => error.fmt(f),
            Self::Segment(error) => error.fmt(f),
            Self::Memory(what, at, error) => {
                write!(f, "{what} at {at}: {}", ipath_base::error::io_text(error))
            }
            Self::Refused(functions) => f.write_str(&none_patched(functions)),
            Self::Unchanged(functions) => f.write_str(&none_measured(functions)),
            Self::NoSpace(bytes) => write!(
                f,
                "no free range of {} MiB in its address space",
                bytes.div_ceil(1 << 20)
            ),
            Self::InTheWay(what) => what.fmt(f),
            Self::TrapBlocked { tid, .. } => write!(
                f,
                "thread {tid} blocks SIGTRAP: a breakpoint would end the program"
            ),
            Self::NotUnder(text) => write!(
                f,
                "no function matches '{text}', which paths are selected by (--under, --not-under)"
            ),
            Self::ManyUnder(copies) => write!(
                f,
                "the functions of --under and --not-under have {copies} copies, more than the \
                {MOST_RANGES} that there is room for"
            ),
            Self::NeedsSystemCalls(metric) => write!(
                f,
                "{metric} needs system calls, and ipath makes none in this process, which is or \
                will be under a seccomp filter or has no /proc"
            ),
            Self::MayBeEnded => f.write_str(
                "it is under a seccomp filter, which may kill it for the system calls that \
                attaching makes",
            ),
            Self::LittleMemory {
                group,
                left,
                needed,
                may,
            } => write!(
                f,
                "its memory cgroup {} has {} MiB left; the session may take {} MiB of them, and \
                needs {} MiB",
                group.display(),
                mib(*left),
                mib(*may),
                mib(*needed)
            ),
            Self::TooMuch(what) => what.fmt(f),
            Self::NotMeasured(metric, functions) => match functions.as_slice() {
                [(name, _)] => write!(f, "{name} does not measure {metric}"),
                _ => write!(f, "none of the functions measures {metric}"),
            },
            Self::Exists => write!(f, "the process has a session already"),
            Self::TooMany => write!(
                f,
                "a session holds {} functions at most",
                abi::MOST_FUNCTIONS
            ),
            Self::OnlyFunctions => f.write_str(
                "its paths consist of measured functions only (--path probes), so no part of a \
                function can be measured",
            ),
            Self::Image(what) => what.fmt(f),
            Self::Held(what) => write!(f, "{what}"),
            Self::Gone(Presence::OtherProgram) => {
                f.write_str("it has become another program (exec) since the session was made")
            }
            Self::Gone(_) => f.write_str("the process has ended"),
            Self::Unknown(cause) => write!(f, "the state of the process is unknown: {cause}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<ProcessError> for SessionError {
    fn from(error: ProcessError) -> Self {
        Self::Process(error)
    }
}

impl From<TraceeError> for SessionError {
    fn from(error: TraceeError) -> Self {
        Self::Tracee(error)
    }
}

impl From<TooMuch> for SessionError {
    fn from(what: TooMuch) -> Self {
        Self::TooMuch(what)
    }
}

impl From<SegmentError> for SessionError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(error)
    }
}

impl SessionError {
    /// True if the cause may disappear by itself within a moment.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::InTheWay(what) => what.passes(),
            Self::TrapBlocked { passes, .. } => *passes,
            _ => false,
        }
    }

    /// The error, if changed code is a jump at `at` to which a signal handler will return.
    pub(super) fn or_interrupted(self, at: Avma) -> Self {
        match self {
            Self::InTheWay(what) => Self::InTheWay(what.or_interrupted(at)),
            other => other,
        }
    }

    /// True if there is no session any more.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Gone(_) => true,
            Self::Segment(error) => {
                matches!(error, SegmentError::Missing | SegmentError::Corrupt(_))
            }
            Self::Process(error) => error.loss().is_some(),
            _ => false,
        }
    }

    /// True if the error may only be a symptom of a process that is ending.
    pub fn may_come_of_an_end(&self) -> bool {
        use SessionError::*;
        matches!(
            self,
            Process(_)
                | Tracee(_)
                | Memory(..)
                | InTheWay(_)
                | TrapBlocked { .. }
                | NoSpace(_)
                | Held(_)
                | Unknown(_)
        )
    }

    /// Replaces an error that may be a symptom with one that says that the program has ended or
    /// been replaced, if so.
    pub(super) fn unless_gone(self, space: &Space) -> Self {
        if !self.may_come_of_an_end() {
            return self;
        }
        match space.check() {
            Err(gone @ (ProcessError::Gone(_) | ProcessError::OtherProgram(_))) => gone.into(),
            _ => self,
        }
    }

    /// True if the program is gone: its process has ended or runs another program.
    pub fn is_gone(&self) -> bool {
        use ProcessError::{Gone, OtherProgram};
        matches!(
            self,
            Self::Gone(_)
                | Self::Process(Gone(_) | OtherProgram(_))
                | Self::Tracee(TraceeError::Process(Gone(_) | OtherProgram(_)))
        )
    }

    /// The name of the process that traces the target, if that is the cause. `None` for other
    /// errors.
    pub fn tracer(&self) -> Option<&str> {
        match self {
            Self::Process(ProcessError::Traced(.., name))
            | Self::Tracee(TraceeError::Process(ProcessError::Traced(.., name))) => Some(name),
            _ => None,
        }
    }
}

/// The note on a function without debug information about its values.
pub fn bare(name: &str) -> String {
    format!(
        "{name}: no debug information: values are whole registers, signed; floating-point values \
        and values in memory are not included"
    )
}

/// The message that nothing can be instrumented, with one function for each reason.
pub fn none_patched(refused: &[(String, Refusal)]) -> String {
    format!("none of the functions can be patched: {}", reasons(refused))
}

/// The message that nothing can be measured as requested, with one function for each reason.
pub fn none_measured(refused: &[(String, Refusal)]) -> String {
    format!(
        "none of the functions can be measured that way: {}",
        reasons(refused)
    )
}

/// The reasons, each with the first function that it concerns.
fn reasons(refused: &[(String, Refusal)]) -> String {
    let mut reasons: BTreeMap<String, &str> = BTreeMap::new();
    for (name, reason) in refused {
        reasons.entry(reason.to_string()).or_insert(name);
    }
    let list: Vec<String> = reasons
        .iter()
        .map(|(reason, name)| format!("{name} ({reason})"))
        .collect();
    list.join(", ")
}
