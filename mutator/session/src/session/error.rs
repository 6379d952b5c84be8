//! What can go wrong with a session, and how a user is told.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use patcher::Avma;
use patcher::plan::RefuseReason;

use super::in_the_way::InTheWay;
use super::refusal::{Refusal, Refused};
use super::{filters, legacy};
use crate::segment::{SegmentError, TooMuch};
use ipath_base::error::Failure;
use ipath_base::hint::{CommandLine, Hint, Word, Words, hint};
use ipath_target::process::headroom::mib;
use ipath_target::process::{Pid, Presence, Process, ProcessError, Space, Tid, limits};
use ipath_target::tracee::TraceeError;

/// What can go wrong with a session.
#[derive(Debug)]
pub enum SessionError {
    /// The process.
    Process(ProcessError),
    /// Stopping it or making it call the system.
    Tracee(TraceeError),
    /// The segment.
    Segment(SegmentError),
    /// Reading or writing its memory.
    Memory(&'static str, Avma, std::io::Error),
    /// None of the functions can be instrumented: their names and why.
    Refused(Refused),
    /// None of the functions, which are in, can measure that: their names and why.
    Unchanged(Refused),
    /// No free range of addresses of that many bytes.
    NoSpace(u64),
    /// Something is in the way of all functions there were.
    InTheWay(InTheWay),
    /// A thread blocks SIGTRAP, for its program or for no more than a moment.
    TrapBlocked {
        /// Which.
        tid: Tid,
        /// True if it is for a moment.
        passes: bool,
    },
    /// The process has a session already.
    Exists,
    /// More functions than a session holds.
    TooMany,
    /// A metric takes system calls, and the runtime is to make none.
    NeedsSystemCalls(String),
    /// A seccomp filter may end the program for what attaching does.
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
    /// More metrics than that.
    TooMuch(TooMuch),
    /// None of these functions, each with what it measures, measures the metric.
    NotMeasured(String, Vec<(String, Vec<String>)>),
    /// The image of the runtime in this program is unusable.
    Image(String),
    /// Something in the target keeps the runtime from being taken out.
    Held(String),
    /// The target has ended, or become another program.
    Gone(Presence),
    /// It cannot be told what the target is now.
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
            Self::NeedsSystemCalls(metric) => write!(
                f,
                "{metric} takes system calls, and ipath makes none in this process, which is or will be under a seccomp filter or has no /proc"
            ),
            Self::MayBeEnded => f.write_str(
                "it is under a seccomp filter, which may end it for the system calls that attaching makes",
            ),
            Self::LittleMemory {
                group,
                left,
                needed,
                may,
            } => write!(
                f,
                "its memory cgroup {} has {} MiB left, of which {} MiB are for the session, and this takes {} MiB",
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
            Self::Image(what) => what.fmt(f),
            Self::Held(what) => write!(f, "{what}"),
            Self::Gone(Presence::OtherProgram) => {
                f.write_str("it has become another program (exec) since the session was made")
            }
            Self::Gone(_) => f.write_str("the process has ended"),
            Self::Unknown(cause) => write!(f, "what the process is now cannot be told: {cause}"),
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

/// What to do with a session that a process has, or what it has started, instead of making one.
pub fn instead(pid: Pid) -> Hint {
    hint!(
        "watch it with `{}`, change it with `{}`, or end it with `{}`",
        CommandLine::ipath("top").pid(pid),
        CommandLine::ipath("add").pid(pid).with("-f FUNC"),
        CommandLine::ipath("detach").pid(pid)
    )
}

impl SessionError {
    /// True if it may go away by itself within a moment.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::InTheWay(what) => what.passes(),
            Self::TrapBlocked { passes, .. } => *passes,
            _ => false,
        }
    }

    /// True if it can be no more than what one meets in a process that ends meanwhile.
    fn may_come_of_an_end(&self) -> bool {
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

    /// The same, or that the program has ended or become another one since, where that can be what it comes of.
    pub(super) fn unless_gone(self, space: &Space) -> Self {
        if !self.may_come_of_an_end() {
            return self;
        }
        match space.check() {
            Err(gone @ (ProcessError::Gone(_) | ProcessError::OtherProgram(_))) => gone.into(),
            _ => self,
        }
    }

    /// True if the program that was meant is no more: the process has ended, or become another one.
    pub fn is_gone(&self) -> bool {
        use ProcessError::{Gone, OtherProgram};
        matches!(
            self,
            Self::Gone(_)
                | Self::Process(Gone(_) | OtherProgram(_))
                | Self::Tracee(TraceeError::Process(Gone(_) | OtherProgram(_)))
        )
    }

    /// The name of who traces the process, where that is in the way.
    pub fn tracer(&self) -> Option<&str> {
        match self {
            Self::Process(ProcessError::Traced(.., name))
            | Self::Tracee(TraceeError::Process(ProcessError::Traced(.., name))) => Some(name),
            _ => None,
        }
    }

    /// What the user can do, if there is something.
    pub fn mend(&self, process: &Process) -> Option<Hint> {
        match self {
            Self::Process(error) | Self::Tracee(TraceeError::Process(error)) => error.hint(),
            Self::Exists => Some(instead(process.pid)),
            Self::Refused(functions) | Self::Unchanged(functions) => {
                let taken = used_by_ipath(functions).or_else(|| no_room(functions, process));
                taken.or_else(|| out_of_reach(functions, process))
            }
            Self::MayBeEnded => Some(hint!(
                "run ipath as root, under no filter itself: then the target's does not act; or give --{} where it is known to answer with errors or SIGSYS",
                Word(filters::ALLOW)
            )),
            Self::Segment(SegmentError::Io(_, error))
                if error.raw_os_error() == Some(libc::ENOMEM) =>
            {
                Some("a session takes some 400 MiB of addresses in ipath as well: raise its own limit (ulimit -v)".into())
            }
            Self::LittleMemory { .. } => Some(
                "a session takes half of what is left at most, since the kernel kills a process of a cgroup that exceeds its limit: raise its limit, or name fewer functions".into(),
            ),
            Self::InTheWay(what) if what.is_inherited() => Some(legacy::mend(process)),
            Self::InTheWay(what) if what.is_unloaded() => {
                Some("--pending waits until it is loaded again".into())
            }
            Self::Tracee(TraceeError::Call(_, errno)) => limits::mend(process, *errno),
            Self::NotMeasured(_, functions) => functions
                .first()
                .map(|(name, measured)| hint!("{} measures {}", Word(name), Words(measured))),
            _ => None,
        }
    }

    /// As a user meets it, in the course of `operation` on the process `pid`.
    pub fn failure(mut self, operation: &str, process: &Process) -> Failure {
        if self.may_come_of_an_end() && process.settled() == Presence::Ended {
            self = Self::Gone(Presence::Ended);
        }
        let hint = self.mend(process);
        let failure = match &self {
            // Names the process itself.
            Self::Process(error) => Failure::of(operation, error),
            Self::Tracee(error) => {
                let text = error.to_string();
                let pid = format!("{}: ", process.pid);
                Failure::new(
                    operation,
                    process.pid,
                    text.strip_prefix(&pid).unwrap_or(&text),
                )
            }
            other => Failure::new(operation, process.pid, other),
        };
        failure.maybe_hint(hint)
    }
}

/// Says what the values of a function are of which nothing is known.
pub fn bare(name: &str) -> String {
    format!(
        "{name}: no debug information: values are whole registers, signed; one with a fraction, or in memory, is not among them"
    )
}

/// Says that nothing can be instrumented, with one function for each reason.
pub fn none_patched(refused: &[(String, Refusal)]) -> String {
    format!("none of the functions can be patched: {}", reasons(refused))
}

/// Says that nothing can be measured as it was wanted, with one function for each reason.
pub fn none_measured(refused: &[(String, Refusal)]) -> String {
    format!(
        "none of the functions can be measured so: {}",
        reasons(refused)
    )
}

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

/// The first of these that is refused for this reason.
fn first(refused: &[(String, Refusal)], reason: RefuseReason) -> Option<&(String, Refusal)> {
    refused.iter().find(|(_, why)| why.is(reason))
}

/// What to do about functions that ipath has for itself.
fn used_by_ipath(refused: &[(String, Refusal)]) -> Option<Hint> {
    let (name, _) = first(refused, RefuseReason::UsedByIpath)?;
    Some(hint!(
        "where times are measured ipath follows stacks that move by {}; a session with `-m count` can count its calls",
        Word(name)
    ))
}

/// Hints at the load address if that has put functions out of reach, or at inherited memory that is in the
/// way.
fn out_of_reach(refused: &[(String, Refusal)], process: &Process) -> Option<Hint> {
    let is_any = first(refused, RefuseReason::PunOutOfReach).is_some();
    is_any.then(|| if legacy::is_in(process) { legacy::mend(process) } else { "where a program is loaded decides what is in reach: start it again, or give --allow-trap"
    .into() })
}

/// What to do about functions whose entry is patched where their exits would be.
fn no_room(functions: &[(String, Refusal)], process: &Process) -> Option<Hint> {
    let (name, _) = first(functions, RefuseReason::ExitsOverlapEntry)?;
    let pid = process.pid;
    Some(hint!(
        "take it out and add it anew: `{}`, then `{}`",
        CommandLine::ipath("remove").pid(pid).func(name),
        CommandLine::ipath("add").pid(pid).func(name).with("-m ...")
    ))
}
