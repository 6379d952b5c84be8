//! Sessions in several processes that run already, shown as one.

use super::job::{Job, Kind};
use super::outcome::tell_refused;
use super::remarks::warn;
use super::source::{AtEnd, Live};
use crate::error::Failure;
use crate::files::file_name;
use crate::process::Process;
use crate::profile::program;
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
    let processes = processes.into_iter().take_while(|_| !signals.ended());
    let begun = in_each(processes, |(number, process)| {
        let (session, changed) = create(process)?;
        enter(job, *number, Live::new(session, at_end), &changed);
        Ok(())
    });
    crate::segment::sweep();
    let (_, failed) = begun?;
    let failed = failed.into_iter();
    let failed = failed.map(|((number, process), failure)| (number, process, failure));
    tell(job, &failed.collect::<Vec<_>>());
    Ok(())
}

/// What was begun, and the failures, each with the item that it is for.
type InEach<I, T> = (Vec<T>, Vec<(I, Failure)>);

/// Begins something for each of these items.
///
/// # Errors
/// The failure for the first item, if it fails for all.
pub(super) fn in_each<I, T>(
    items: impl IntoIterator<Item = I>,
    mut begin: impl FnMut(&I) -> Result<T, Failure>,
) -> Result<InEach<I, T>, Failure> {
    let (mut begun, mut failed) = (Vec::new(), Vec::new());
    for item in items {
        match begin(&item) {
            Ok(one) => begun.push(one),
            Err(failure) => failed.push((item, failure)),
        }
    }
    match failed.first() {
        Some((_, failure)) if begun.is_empty() => Err(failure.clone()),
        _ => Ok((begun, failed)),
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
