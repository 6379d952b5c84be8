//! `attach`: instruments a running process.

use crate::commands::failures::SessionFailure;
use patcher::select::{Pattern, Spot};

use super::existing::refuse_existing;
use super::find::{self, Wanted};
use super::limit::tell_unlimited;
use super::live::{AtEnd, Live};
use super::measure::{check, options, patterns, spots, unwatched, waiting};
use super::others::tell_left_out;
use super::outcome::tell_refused;
use super::remarks::warn;
use super::renewal::Renewal;
use super::target::find;
use super::watch::{Watch, hold, watch};
use crate::cli::{Measure, Show};
use crate::failure::Failure;
use ipath_base::hint::{CommandLine, hint};
use ipath_session::mpi;
use ipath_session::session::{Options, Selected, Session, SessionError, Where, select_in};
use ipath_target::emulators::Runner;
use ipath_target::process::{Pid, Process};

/// Instruments a running process and shows the measurements. Removes the session at the end, unless
/// `keep` is true. Without patterns, the user chooses functions in the view. That is an error if
/// there is no view.
pub(super) fn attach(pid: Pid, measure: &Measure, show: &Show, keep: bool) -> Result<(), Failure> {
    const OPERATION: &str = "attach";
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns)?;
    let options = options(OPERATION, measure)?;
    let watch_output = Watch::new(show)?;
    let process = find(OPERATION, pid)?;
    let failure = |e: SessionError| e.failure(OPERATION, &process);
    process.check().map_err(|e| failure(e.into()))?;
    refuse_existing(&process)?;
    let stands = process.stands();
    let patterns = match patterns.is_empty() && spots.is_empty() {
        false => patterns,
        true if watch_output.is_view() => {
            let signals = hold(OPERATION)?;
            let wanted = find::choose(OPERATION, &process, &signals)?;
            signals.release();
            match wanted {
                Wanted::Functions(patterns) => patterns,
                Wanted::Nothing => return Ok(()),
                Wanted::OtherProgram => {
                    return Err(Failure::new(OPERATION, pid, find::OTHER_PROGRAM));
                }
                Wanted::Over(why) => return Err(Failure::new(OPERATION, pid, why)),
            }
        }
        true => {
            let suggest = CommandLine::ipath("suggest").pid(pid);
            let hint = hint!("`{}` lists functions worth naming with -f", suggest);
            return Err(find::nothing_named(OPERATION, &pid.to_string()).hint(hint));
        }
    };
    let selected = selected(OPERATION, &process, &patterns, &spots, measure, &options);
    let selected = selected.map_err(|failure| {
        if started_ranks(&process) {
            failure.hint("it has started ranks of an MPI job: --mpi measures them")
        } else {
            failure
        }
    })?;
    let waiting = waiting(&selected.selection);
    let signals = hold(OPERATION)?;
    let (session, changed) =
        Session::create(&process, &options, selected, Where::Running).map_err(failure)?;
    ipath_session::segment::sweep();
    let at_end = if keep { AtEnd::Keep } else { AtEnd::TakeOut };
    let live = Live::renewed(session, at_end, Renewal::of(&process, None));
    let mut live = live.limited(measure.max_overhead);
    tell_refused(&changed);
    waiting.iter().for_each(|line| warn(line));
    if let Some(how) = stands {
        warn(&format!(
            "{OPERATION} {pid}: it is {how}, and makes no calls until it continues: `kill -CONT \
            {pid}`"
        ));
    }
    tell_unlimited(pid, measure, keep);
    if keep && measure.pending {
        warn(&unwatched(pid));
    }
    let otherwise = "--children measures them, --follow measures the processes that it starts \
        from now on";
    let alike = process.alike_descendants();
    live.note_all(tell_left_out(OPERATION, pid, alike, "measured", otherwise));
    watch(&watch_output, show, live, signals, &[])
}

/// True if the process is the launcher of an MPI job.
fn started_ranks(process: &Process) -> bool {
    mpi::rank_of(process).is_none() && mpi::ranks(process, &[]).is_ok()
}

/// Selects and checks the functions to instrument in a running process. Prints a warning if an
/// emulator or a virtual machine runs the process.
pub(super) fn selected(
    operation: &str,
    process: &Process,
    patterns: &[Pattern],
    spots: &[Spot],
    measure: &Measure,
    options: &Options,
) -> Result<Selected, Failure> {
    let pid = process.pid;
    let failure = |e: SessionError| e.failure(operation, process);
    let mut selected = select_in(process, patterns, options.wanted()).map_err(failure)?;
    selected.complete(spots, measure.patterns.allow_trap, &options.items());
    let (named, selection) = (&measure.patterns, &selected.selection);
    let subject = pid.to_string();
    check(operation, &subject, named, selection, measure.pending)?;
    if let Some(runner) = Runner::of_process(process) {
        warn(&format!("{operation} {pid}: {}", runner.note()));
    }
    Ok(selected)
}
