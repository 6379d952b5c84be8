//! `add`, `remove`, `snapshot` and `detach`: changes to a session from any terminal.

use std::path::Path;

use super::measure::{check, patterns, tell_refused};
use super::{open_session, open_to_change, print};
use crate::cli::Patterns;
use crate::collect::Collector;
use crate::error::Failure;
use crate::process::Pid;
use crate::session::{Ended, Session};

/// Refuses to change a session whose process has ended or cannot be traced now.
fn changeable(operation: &str, session: &Session) -> Result<(), Failure> {
    let process = session.process();
    super::find(operation, process.pid)?;
    process.check().map_err(|e| {
        let hint = e.hint();
        Failure::of(operation, e).maybe_hint(hint)
    })
}

/// Instruments further functions.
pub(super) fn add(pid: Pid, given: &Patterns) -> Result<(), Failure> {
    const OPERATION: &str = "add";
    let patterns = patterns(OPERATION, &given.func)?;
    let mut session = open_to_change(OPERATION, pid)?;
    changeable(OPERATION, &session)?;
    let process = session.process().clone();
    let failure = |e: crate::session::SessionError| e.failure(OPERATION, &process);
    let mut selected = session.select(&patterns).map_err(failure)?;
    if given.allow_trap {
        selected.selection.allow_traps();
    }
    check(OPERATION, &pid.to_string(), given, &selected.selection)?;
    let changed = session.add(OPERATION, selected).map_err(failure)?;
    tell_refused(&changed);
    print(&format!("added {}\n", changed.functions.join(", ")))
}

/// Takes functions out.
pub(super) fn remove(pid: Pid, given: &Patterns) -> Result<(), Failure> {
    const OPERATION: &str = "remove";
    let patterns = patterns(OPERATION, &given.func)?;
    let mut session = open_to_change(OPERATION, pid)?;
    changeable(OPERATION, &session)?;
    let process = session.process().clone();
    let failure = |e: crate::session::SessionError| e.failure(OPERATION, &process);
    for pattern in &patterns {
        let ids = session
            .matching(std::slice::from_ref(pattern))
            .map_err(failure)?;
        if !ids
            .iter()
            .any(|&id| session.document().functions[id].active)
        {
            let active = session.document().measured().filter(|(_, f)| f.active);
            let names: Vec<&str> = active.map(|(_, f)| f.name.as_str()).collect();
            let cause = format!("no instrumented function matches '{}'", pattern.text());
            return Err(Failure::new(OPERATION, pid, cause)
                .hint(format!("instrumented are {}", names.join(", "))));
        }
    }
    let ids = session.matching(&patterns).map_err(failure)?;
    let changed = session.remove(&ids).map_err(failure)?;
    print(&format!("removed {}\n", changed.functions.join(", ")))
}

/// Writes the profile as it is now.
pub(super) fn snapshot(pid: Pid, output: &Path) -> Result<(), Failure> {
    super::watch::check_output(output)?;
    let session = open_session("snapshot", pid)?;
    let profile = Collector::default().profile(&session);
    profile.save(output).map_err(|e| Failure::of("write", e))
}

/// Takes a session out of its process.
pub(super) fn detach(pid: Pid, output: Option<&Path>) -> Result<(), Failure> {
    const OPERATION: &str = "detach";
    if let Some(path) = output {
        super::watch::check_output(path)?;
    }
    let mut session = open_to_change(OPERATION, pid)?;
    let process = session.process().clone();
    if !process.has_ended() {
        changeable(OPERATION, &session)?;
    }
    let ended = session
        .detach()
        .map_err(|e| e.failure(OPERATION, &process))?;
    if let Some(path) = output {
        let profile = Collector::default().profile(&session);
        profile.save(path).map_err(|e| Failure::of("write", e))?;
    }
    if ended == Ended::TargetGone {
        super::warn(&format!(
            "detach {pid}: the program had ended or become another"
        ));
    }
    Ok(())
}
