//! Errors of sessions.

use super::process::{ProcessFailure, raise};
use crate::failure::Failure;
use ipath_base::hint::{CommandLine, Hint, Word, Words, hint};
use ipath_session::segment::SegmentError;
use ipath_session::session::{Refusal, SessionError, legacy};
use ipath_target::process::{Pid, Presence, Process};
use ipath_target::tracee::TraceeError;
use patcher::plan::RefuseReason;

/// The option by which a user states that a seccomp filter does not kill the program.
const ALLOW_SECCOMP: &str = "allow-seccomp";

/// An error of a session, for users.
pub(in crate::commands) trait SessionFailure {
    /// The user's remedy for the error in `process`. `None` if there is none.
    fn advice(&self, process: &Process) -> Option<Hint>;

    /// Converts the error to a failure of `operation` on a process, with advice. If the process has
    /// ended and that explains the error, the failure says so.
    fn failure(self, operation: &str, process: &Process) -> Failure;
}

impl SessionFailure for SessionError {
    fn advice(&self, process: &Process) -> Option<Hint> {
        match self {
            Self::Process(error) | Self::Tracee(TraceeError::Process(error)) => error.advice(),
            Self::Exists => Some(instead(process.pid)),
            Self::Refused(functions) | Self::Unchanged(functions) => {
                let taken = used_by_ipath(functions).or_else(|| no_room(functions, process));
                taken.or_else(|| in_reach(functions, process))
            }
            Self::MayBeEnded => Some(hint!(
                "run ipath as root and outside of any filter, which suspends the target's filter; \
                or give --{} if the filter answers with errors or SIGSYS",
                Word(ALLOW_SECCOMP)
            )),
            Self::Segment(SegmentError::Io(_, error))
                if error.raw_os_error() == Some(libc::ENOMEM) =>
            {
                Some(
                    "a session also needs some 400 MiB of addresses in ipath: raise ipath's own \
                    limit (ulimit -v)"
                        .into(),
                )
            }
            Self::LittleMemory { .. } => Some(
                "a session takes at most half of the memory that is left, because the kernel \
                kills processes of a cgroup that exceeds its limit: raise the limit, or name \
                fewer functions"
                    .into(),
            ),
            Self::InTheWay(what) if what.is_inherited() => Some(start_again(process)),
            Self::InTheWay(what) if what.is_unloaded() => {
                Some("--pending waits until it is loaded again".into())
            }
            Self::Tracee(TraceeError::Call(_, errno)) => raise(process, *errno),
            Self::NotMeasured(_, functions) => functions
                .first()
                .map(|(name, measured)| hint!("{} measures {}", Word(name), Words(measured))),
            _ => None,
        }
    }

    fn failure(mut self, operation: &str, process: &Process) -> Failure {
        if self.may_come_of_an_end() && process.settled() == Presence::Ended {
            self = Self::Gone(Presence::Ended);
        }
        let hint = self.advice(process);
        let failure = match &self {
            // The error names the process itself.
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

/// The error and its advice in one line, as the reason why a followed program is not measured.
pub(in crate::commands) fn unmeasured(error: &SessionError, process: &Process) -> String {
    match error.advice(process) {
        Some(advice) => format!("{error} ({advice})"),
        None => error.to_string(),
    }
}

/// The alternatives to a second session in a process, or in its descendants.
pub(in crate::commands) fn instead(pid: Pid) -> Hint {
    hint!(
        "watch it with `{}`, change it with `{}`, or end it with `{}`",
        CommandLine::ipath("top").pid(pid),
        CommandLine::ipath("add").pid(pid).with("-f FUNC"),
        CommandLine::ipath("detach").pid(pid)
    )
}

/// The advice to restart a process, since only a new one is free of the inherited memory.
fn start_again(process: &Process) -> Hint {
    match legacy::parent_with_session(process) {
        Some(pid) => hint!(
            "its parent {} has that session: run `{}` and let it start this process again, or run \
            `{}` before it starts the next one",
            pid,
            CommandLine::ipath("detach").pid(pid),
            CommandLine::ipath("attach --follow")
                .pid(pid)
                .with("-f FUNC")
        ),
        None => "start the process again: a new one does not have them".into(),
    }
}

/// The first function that is refused for this reason. `None` if there is none.
fn first(refused: &[(String, Refusal)], reason: RefuseReason) -> Option<&(String, Refusal)> {
    refused.iter().find(|(_, why)| why.is(reason))
}

/// The advice if a function is refused because ipath itself uses it. `None` if none is.
fn used_by_ipath(refused: &[(String, Refusal)]) -> Option<Hint> {
    let (name, _) = first(refused, RefuseReason::UsedByIpath)?;
    Some(hint!(
        "when times are measured, ipath itself uses {} to follow stacks that move; a session with \
        `-m count` can count its calls",
        Word(name)
    ))
}

/// The advice if a function is refused because the load address has put it out of reach, or because
/// inherited memory blocks it. `None` if none is.
fn in_reach(refused: &[(String, Refusal)], process: &Process) -> Option<Hint> {
    let is_any = first(refused, RefuseReason::PunOutOfReach).is_some();
    is_any.then(|| {
        if legacy::is_in(process) {
            start_again(process)
        } else {
            "the load address of \
        a program decides which code is in reach: start it again, or give --allow-trap"
                .into()
        }
    })
}

/// The advice if a function is refused because its entry patch takes the room of its exit patches.
/// `None` if none is.
fn no_room(functions: &[(String, Refusal)], process: &Process) -> Option<Hint> {
    let (name, _) = first(functions, RefuseReason::ExitsOverlapEntry)?;
    let pid = process.pid;
    Some(hint!(
        "take it out and add it again: `{}`, then `{}`",
        CommandLine::ipath("remove").pid(pid).func(name),
        CommandLine::ipath("add").pid(pid).func(name).with("-m ...")
    ))
}
