//! `attach` of a process that has a session.

use super::measure::options;
use super::remarks::warn;
use super::target::{is_family_of, open_all};
use super::top::watch_all;
use crate::cli::{Measure, Show};
use crate::commands::failures::SessionFailure;
use crate::failure::Failure;
use ipath_base::hint::CommandLine;
use ipath_session::session::{Session, SessionError};
use ipath_target::process::{Pid, Process};

const OPERATION: &str = "attach";

/// Shows the session of a process, with the sessions of its process tree or of its ranks, and
/// prints that it existed before. Returns false if none of them is measuring.
///
/// # Errors
/// An option is wrong, or the session cannot be shown.
pub(super) fn show_existing(pid: Pid, measure: &Measure, show: &Show) -> Result<bool, Failure> {
    let mut sessions = open_all(OPERATION, pid, Session::open).unwrap_or_default();
    sessions.retain(is_active);
    if sessions.is_empty() {
        return Ok(false);
    }
    options(OPERATION, measure)?;
    let detach = CommandLine::ipath("detach").pid(pid);
    warn(&format!(
        "{OPERATION} {pid}: it already has a session, which is shown and stays in: `{detach}` \
        takes it out"
    ));
    watch_all(OPERATION, sessions, show, measure.max_overhead)?;
    Ok(true)
}

/// Refuses to begin another session in a process.
///
/// # Errors
/// The process has a session that is measuring.
pub(super) fn refuse_existing(process: &Process) -> Result<(), Failure> {
    let session = Session::open(process).ok();
    refuse_any(process, session.as_slice())
}

/// Refuses to begin another session in a process tree.
///
/// # Errors
/// A session is measuring in the process, in a descendant (`--children`, `--follow`), or in a rank.
pub(super) fn refuse_existing_of_tree(process: &Process) -> Result<(), Failure> {
    let sessions = open_all(OPERATION, process.pid, Session::open).unwrap_or_default();
    refuse_any(process, &sessions)
}

/// True if a process has a session in the family of the process `first`: the processes that a
/// command measures together. False if `first` is `None`.
pub(super) fn is_of_family(process: &Process, first: Option<&Process>) -> bool {
    let session = Session::open(process);
    first.is_some_and(|first| {
        session.is_ok_and(|s| is_family_of(s.document().family, first.pid, Some(first)))
    })
}

fn refuse_any(process: &Process, sessions: &[Session]) -> Result<(), Failure> {
    if sessions.iter().any(is_active) {
        Err(SessionError::Exists.failure(OPERATION, process))
    } else {
        Ok(())
    }
}

/// True for a session that is measuring. The next `attach` repairs the session of a killed command.
fn is_active(session: &Session) -> bool {
    session.is_whole() && session.over() == Ok(None)
}
