//! Sessions in several processes that run already, shown as one.

use super::job::{Job, Kind};
use super::outcome::tell_refused;
use super::remarks::warn;
use super::source::{AtEnd, Live};
use crate::error::Failure;
use crate::process::Process;
use crate::profile::{file_name, program};
use crate::session::{Changed, Session};
use crate::signals::Signals;

/// The most lines about processes that are not measured.
const MOST_SAID: usize = 20;

/// A process that is not measured, with its number and the reason.
pub(super) type Failed = (u32, Process, Failure);

/// Makes a session in each of these processes with `create`, and adds them to the job. Prints a line for
/// each process that is not measured. Stops when a signal ends the command.
///
/// # Errors
/// The failure for the first process, if none of them is measured.
pub(super) fn begin(
    job: &mut Job,
    processes: Vec<(u32, Process)>,
    at_end: AtEnd,
    signals: &Signals,
    mut create: impl FnMut(&Process) -> Result<(Session, Changed), Failure>,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (number, process) in processes {
        if signals.ended() {
            break;
        }
        match create(&process) {
            Ok((session, changed)) => enter(job, number, Live::new(session, at_end), &changed),
            Err(failure) => failed.push((number, process, failure)),
        }
    }
    crate::segment::sweep();
    match (job.is_empty(), failed.first()) {
        (true, Some((_, _, failure))) => Err(failure.clone()),
        // A signal came before the first session.
        (true, None) => Ok(()),
        (false, _) => {
            tell(job, &failed);
            Ok(())
        }
    }
}

/// Adds a session to the job. Prints refused functions once for each program: they are refused in each of
/// its processes.
pub(super) fn enter(job: &mut Job, number: u32, live: Live, changed: &Changed) {
    if job.is_new_program(live.session()) {
        tell_refused(changed);
    }
    job.enter(number, live);
}

/// Prints a line for each of these processes, and adds it to the notes of the profile.
pub(super) fn tell(job: &mut Job, failed: &[Failed]) {
    let kind = job.kind();
    for (index, (number, process, failure)) in failed.iter().enumerate() {
        let said = not_measured(kind, *number, process, failure);
        if index < MOST_SAID {
            warn(&said);
        }
        job.note_unmeasured(said);
    }
    let unsaid = failed.len().saturating_sub(MOST_SAID);
    if unsaid > 0 {
        let processes = kind.several();
        warn(&format!("{unsaid} more {processes} are not measured"));
    }
}

fn not_measured(kind: Kind, number: u32, process: &Process, failure: &Failure) -> String {
    let line = failure.in_one_line();
    match kind {
        Kind::Rank => format!("rank {number} is not measured: {line}"),
        Kind::Process => {
            let pid = format!(" {}: ", process.pid);
            let why = line.split_once(&pid).map_or(line.as_str(), |(_, why)| why);
            match name(process) {
                Some(name) => format!("process {number} ({name}) is not measured: {why}"),
                None => format!("process {number} is not measured: {why}"),
            }
        }
    }
}

/// The name of a process for messages. `None` if it has ended.
fn name(process: &Process) -> Option<String> {
    let exe = process.exe()?.display().to_string();
    let args = process.args();
    let (name, _) = program(&exe, &args);
    Some(match name.starts_with('/') {
        true => file_name(&name).to_owned(),
        false => name.into_owned(),
    })
}
