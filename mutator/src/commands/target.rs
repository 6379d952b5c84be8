//! The process, session or profile that a command operates on.

use crate::commands::failures::{ProcessFailure, SessionFailure};
use std::path::{Path, PathBuf};

use super::remarks::warn;
use crate::failure::Failure;
use ipath_base::hint::{CommandLine, Hint, hint};
use ipath_profile::{Profile, Target};
use ipath_session::mpi::ranks;
use ipath_session::segment::{SegmentError, family_at, named};
use ipath_session::session::{Session, SessionError};
use ipath_target::process::{Pid, Presence, Process, host};

/// Finds the process with the id `pid`. An error if there is none.
pub(super) fn find(operation: &str, pid: Pid) -> Result<Process, Failure> {
    Process::find(pid).map_err(|e| e.failure(operation))
}

/// A process as the target of a profile.
pub(super) fn target_of(process: &Process) -> Target {
    let exe = process.exe();
    Target {
        pid: process.pid.0 as u32,
        exe: exe.map_or_else(String::new, |exe| exe.display().to_string()),
        args: process.args(),
        host: host(),
        ..Target::default()
    }
}

/// Loads the profile in a file.
pub(super) fn load(operation: &str, file: &Path) -> Result<Profile, Failure> {
    Profile::load(file).map_err(|e| {
        let hint = e.hint().map(Hint::from);
        Failure::of(operation, e).maybe_hint(hint)
    })
}

/// The sessions of living processes in the family of `first` whose link to it is broken, because a
/// process in between has ended.
fn orphans(
    pid: Pid,
    first: Option<&Process>,
    known: &[Session],
    named: &[(PathBuf, Process)],
    open: fn(&Process) -> Result<Session, SessionError>,
) -> Vec<Session> {
    let is_known = |process: &Process| known.iter().any(|s| s.process() == process);
    // A descendant is no older than its ancestor. So sessions of older processes are not opened.
    let is_younger = |process: &Process| first.is_none_or(|f| process.start_time >= f.start_time);
    let others = named.iter().filter(|(_, process)| {
        let is_other = process.pid != pid && is_younger(process) && !is_known(process);
        is_other && process.life() == Presence::Here
    });
    // Sessions of other families are not opened.
    let others = others.filter(|(path, _)| is_family_of(family_at(path), pid, first));
    others
        .filter_map(|(_, process)| open(process).ok())
        .collect()
}

/// True if a session of this family was created together with those of the process `pid`. `first`
/// is that process, or `None` if it has ended. False if `family` is `None`.
pub(super) fn is_family_of(family: Option<(i32, u64)>, pid: Pid, first: Option<&Process>) -> bool {
    family.is_some_and(|id| match first {
        Some(first) => id == first.id(),
        None => id.0 == pid.0,
    })
}

/// Opens the session of a process and the sessions of its descendants that are measured with it. If
/// there are none, opens those of the ranks that it has started as an MPI launcher.
///
/// The session of an ended process is included while its segment exists.
///
/// # Errors
/// No session is found or can be opened.
pub(super) fn open_all(
    operation: &str,
    pid: Pid,
    open: fn(&Process) -> Result<Session, SessionError>,
) -> Result<Vec<Session>, Failure> {
    open_all_of(&named(), operation, pid, open)
}

/// Like [`open_all`], with these named segments.
pub(super) fn open_all_of(
    named: &[(PathBuf, Process)],
    operation: &str,
    pid: Pid,
    open: fn(&Process) -> Result<Session, SessionError>,
) -> Result<Vec<Session>, Failure> {
    let launcher = Process::find(pid).ok();
    let own = open_by(named, operation, pid, open);
    let started = launcher.iter().flat_map(Process::descendants);
    let started = started.filter_map(|process| open(&process).ok());
    let followed = started.filter(|session| session.document().parent.is_some());
    let followed: Vec<Session> = followed.collect();
    let orphans = orphans(pid, launcher.as_ref(), &followed, named, open);
    let (mut sessions, failure) = match own {
        Ok(session) => (vec![session], None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    sessions.extend(followed);
    sessions.extend(orphans);
    let Some(failure) = failure.filter(|_| sessions.is_empty()) else {
        return Ok(sessions);
    };
    let ranks = launcher.and_then(|launcher| ranks(&launcher, &[]).ok());
    let ranks = ranks.unwrap_or_default();
    let mut sessions = Vec::new();
    for rank in &ranks {
        match open(&rank.process) {
            Ok(session) => sessions.push(session),
            Err(SessionError::Segment(SegmentError::Missing)) => {}
            Err(error) => {
                let failure = error.failure(operation, &rank.process);
                warn(&format!("rank {}: {}", rank.number, failure.in_one_line()));
            }
        }
    }
    match (sessions.is_empty(), ranks.is_empty()) {
        (true, true) => Err(failure),
        (true, false) => Err(failure.hint(hint!(
            "it has started ranks of an MPI job without sessions: `{}` begins them",
            CommandLine::ipath("attach --mpi").pid(pid).with("-f FUNC")
        ))),
        (false, _) => Ok(sessions),
    }
}

fn open_by(
    named: &[(PathBuf, Process)],
    operation: &str,
    pid: Pid,
    open: fn(&Process) -> Result<Session, SessionError>,
) -> Result<Session, Failure> {
    let process = match Process::find(pid) {
        Ok(process) => process,
        Err(error) => {
            // The latest process that had this id.
            let latest = named.iter().rev().find(|(_, p)| p.pid == pid);
            let Some((_, process)) = latest else {
                return Err(Failure::of(operation, error));
            };
            process.clone()
        }
    };
    open(&process).map_err(|error| {
        let is_missing = matches!(error, SessionError::Segment(SegmentError::Missing));
        let failure = error.failure(operation, &process);
        match operation {
            _ if !is_missing => failure,
            "detach" | "remove" | "status" => {
                failure.hint("`ipath status` lists the sessions on this machine")
            }
            _ => failure.hint(hint!(
                "begin one with `{}`",
                CommandLine::ipath("attach").pid(pid).with("-f FUNC")
            )),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_session::segment::{Document, Segment, Shape};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static OPENED: AtomicUsize = AtomicUsize::new(0);

    /// Sessions of other families are not opened.
    #[test]
    fn only_sessions_of_the_family_are_opened() {
        let own = Process::find(Pid(std::process::id() as i32)).expect("this process");
        // A segment that is not in use, so this process does not count as its user.
        let other = Process {
            start_time: own.start_time + 1,
            ..own.clone()
        };
        let shape = Shape {
            max_paths: 100,
            columns: 1,
            keeps_single: false,
        };
        let (segment, _lock) = Segment::create(&other, &shape).expect("a segment");
        let path = named().into_iter().find(|(_, process)| *process == other);
        let (path, _) = path.expect("its name");
        let first = Process {
            pid: Pid(1),
            start_time: own.start_time,
        };
        let named = [(path, own)];
        let opened = |family: Option<(i32, u64)>| {
            let document = Document {
                family,
                ..Document::default()
            };
            segment.write_document(&document).expect("room");
            let before = OPENED.load(Relaxed);
            orphans(first.pid, Some(&first), &[], &named, |_| {
                OPENED.fetch_add(1, Relaxed);
                Err(SessionError::Exists)
            });
            OPENED.load(Relaxed) - before
        };
        let counts = [None, Some((1, 7)), Some(first.id())].map(opened);
        segment.remove_name();
        assert_eq!(counts, [0, 0, 1]);
    }
}
