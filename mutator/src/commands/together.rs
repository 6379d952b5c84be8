//! Sessions in several running processes, shown as one job.

use super::each::in_each;
use super::later::Later;
use super::live::{AtEnd, Live};
use super::processes::Job;
use crate::failure::Failure;
use ipath_session::session::{Changed, Session};
use ipath_target::process::Process;
use ipath_target::signals::Signals;

/// Creates a session in each of these processes with `create`, and adds them to the job. Each
/// process is given with its rank or process id. `most` is the limit of the overhead in each, as a
/// share of its CPU time.
///
/// A process with a thread in vfork(2) gets its session later, unless there is no other. Prints a
/// line for each process that is not measured. Stops when a signal ends the command.
///
/// # Errors
/// The failure for the first process, if none of them is measured.
pub(super) fn begin<'a>(
    job: &mut Job<'a>,
    processes: Vec<(u32, Process)>,
    (at_end, most): (AtEnd, Option<f64>),
    signals: &Signals,
    mut create: impl FnMut(&Process) -> Result<(Session, Changed), Failure> + 'a,
) -> Result<(), Failure> {
    let mut create = move |process: &Process| {
        let (session, changed) = create(process)?;
        Ok((Live::new(session, at_end).limited(most), changed))
    };
    let waits = |(_, process): &(u32, Process)| process.waits_for_child();
    let (mut waiting, mut ready): (Vec<_>, Vec<_>) = processes.into_iter().partition(waits);
    if ready.is_empty() {
        ready = std::mem::take(&mut waiting);
    }
    let ready = ready.into_iter().take_while(|_| !signals.ended());
    let begun = in_each(ready.map(|(number, process)| match create(&process) {
        Ok((live, changed)) => {
            job.enter_new(number, live, &changed);
            Ok(())
        }
        Err(failure) => Err(((number, process), failure)),
    }));
    ipath_session::segment::sweep();
    let (_, failed) = begun?;
    let failed = failed.into_iter();
    let failed = failed.map(|((number, process), failure)| (number, process, failure));
    job.tell_unmeasured(&failed.collect::<Vec<_>>());
    let create = move |process: &Process| create(process).map(Some);
    job.set_later(Later::new(waiting, create));
    Ok(())
}
