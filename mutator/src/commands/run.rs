//! `run`: measures a program from its first instruction.

use crate::commands::failures::SessionFailure;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd;

use super::attach::selected;
use super::find::{self, Wanted};
use super::live::{AtEnd, Live};
use super::measure::{MANY, check, options, patterns, spots, waiting};
use super::outcome::tell_refused;
use super::panics::caught;
use super::rank_file::of_own_rank;
use super::remarks::warn;
use super::renewal::{Again, Renewal};
use super::replaced::Begun;
use super::search::{Prey, Searching};
use super::spool::Spool;
use super::unbegun::Unbegun;
use super::watch::{Watch, enders, hold, watch};
use crate::cli::{Measure, Refine, Show};
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_session::launch::{self, LaunchError, Launched, launch, shell_status, status_if_ended};
use ipath_session::session::{Changed, Options, Session, SessionError, Where, select_stopped};
use ipath_target::process::{Pid, Presence, Process, Space, tids};
use ipath_target::signals::Signals;
use ipath_target::tracee::{Stopped, TraceeError};

pub(super) const OPERATION: &str = "run";

/// The signals of Ctrl-C and Ctrl-\. The program receives them as well, and may continue.
pub(super) const FOR_PROGRAM: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

/// Starts a program, instruments it and watches it. Ends with the program's status.
pub(super) fn run(
    measure: &Measure,
    refine: &Refine,
    show: &Show,
    program: &[OsString],
) -> Result<ExitCode, Failure> {
    let show = &of_own_rank(show)?;
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns)?;
    let mut options = options(OPERATION, measure)?;
    let output = Watch::beside_program(show)?;
    let search = if refine.search {
        Some(Searching::new(
            OPERATION,
            (measure, refine, show),
            &mut options,
        )?)
    } else {
        None
    };
    let subject = program
        .first()
        .map(|p| p.to_string_lossy().into_owned())
        .unwrap_or_default();
    let unknown = |e| not_begun(&subject, e);
    launch::check(program.first().map_or(OsStr::new(""), |p| p))
        .map_err(|e| Failure::new(OPERATION, &subject, e))?;
    let is_to_choose = search.is_none() && patterns.is_empty() && spots.is_empty();
    if is_to_choose && !output.is_view() {
        let hint = "name functions with -f, or find them with --search; `ipath suggest PID` lists \
            functions worth measuring in a running process";
        return Err(find::nothing_named(OPERATION, &subject).hint(hint));
    }
    let spool = if output.is_view() && search.is_none() {
        Spool::new()
    } else {
        Spool::default()
    };
    let signals = hold(OPERATION)?;
    let enders = enders(OPERATION, &signals)?;
    let Launched {
        mut child,
        process,
        mut stopped,
    } = launch(program, signals.before(), |c| spool.redirect(c)).map_err(unknown)?;
    let resumed = |e: TraceeError| Failure::new(OPERATION, &subject, e);
    if is_to_choose {
        stopped.resume().map_err(resumed)?;
        let watched = choose_and_watch(measure, show, &output, &options, &process, signals);
        return end(&mut child, spool, watched, &subject, || None);
    }
    let unbegun = Unbegun::watch(OPERATION, &subject, process.pid, enders);
    let begun = Begun::of(&process);
    let mut said = Vec::new();
    // The error if a shell lacks the functions. It may still exec the program that defines them.
    let mut missing = None;
    let mut options_here = options.clone();
    let prepared = caught(OPERATION, || {
        // Dropped here on every path.
        let unbegun = unbegun;
        if patterns.is_empty() && spots.is_empty() {
            return Ok(None);
        }
        let failure = |e: SessionError| e.failure(OPERATION, &process);
        let space = Arc::clone(stopped.space());
        let held = Some(&mut stopped);
        let wanted = options.wanted();
        let mut selected =
            select_stopped(space, &patterns, wanted, held, false).map_err(failure)?;
        selected.complete(&spots, measure.patterns.allow_trap, &options.items());
        let (named, selection) = (&measure.patterns, &selected.selection);
        let checked = |waits| check(OPERATION, &subject, named, selection, waits);
        if let Err(failure) = checked(measure.pending) {
            let failure = begun.not_found(failure, &patterns, &subject);
            if !begun.is_shell() || checked(true).is_err() {
                return Err(failure);
            }
            let unmatched = selection.unmatched.iter().map(|u| u.pattern.clone());
            options_here.pending = unmatched.collect();
            missing = Some(failure);
        } else {
            said = waiting(selection);
        }
        selected.prepare();
        unbegun.end_watch();
        let held = Where::Stopped(&mut stopped);
        match Session::create(&process, &options_here, selected, held) {
            Ok(created) => Ok(Some(created)),
            Err(error) => Err(missing.take().unwrap_or_else(|| failure(error))),
        }
    });
    let created = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return Err(refused(&mut child, stopped, failure)),
    };
    let again = Again {
        operation: OPERATION,
        patterns,
        spots,
        options: options.clone(),
        allows_traps: measure.patterns.allow_trap,
        most: if measure.patterns.yes {
            abi::MOST_FUNCTIONS
        } else {
            MANY
        },
    };
    let renewal = Renewal::of(&process, Some(again));
    let live = created.map(|(session, changed)| {
        let live = Live::renewed(session, AtEnd::TakeOut, Arc::clone(&renewal));
        tell_refused(&changed);
        said.iter().for_each(|line| warn(line));
        live.session().note_begin();
        // A search keeps its limit itself.
        live.limited(measure.max_overhead.filter(|_| search.is_none()))
    });
    stopped.resume().map_err(resumed)?;
    let watched = match (search, live) {
        (Some(search), live) => search.search(
            &process,
            (vec![Prey::of(&process)], live, None),
            &output,
            &options,
            (signals, &FOR_PROGRAM),
        ),
        (None, Some(live)) => watch(&output, show, live, signals, &FOR_PROGRAM),
        // Without a search, a function is named.
        (None, None) => Ok(()),
    };
    let missing = missing.filter(|_| !renewal.has_renewed());
    let watched = watched.and_then(|()| missing.map_or(Ok(()), Err));
    end(&mut child, spool, watched, &subject, || None)
}

/// Lets the user choose functions while the program runs, and watches them. If none is chosen, the
/// program continues.
fn choose_and_watch(
    measure: &Measure,
    show: &Show,
    output: &Watch,
    options: &Options,
    process: &Process,
    signals: Signals,
) -> Result<(), Failure> {
    let said = |cause: &str| warn(&format!("{OPERATION} {}: {cause}", process.pid));
    let chosen = loop {
        let space = Space::open(process);
        let chosen = choose(measure, options, process, &signals);
        let is_there = || space.as_ref().map_or(Presence::Ended, Space::is_current);
        match chosen {
            Ok(Some(chosen)) => break Some(chosen),
            Ok(None) => {
                said("no function was chosen: the program continues, and Ctrl-C ends it");
                break None;
            }
            Err(failure) if failure.is_internal() => return Err(failure),
            Err(failure) => match (process.life(), is_there()) {
                (Presence::Ended, _) => {
                    said("it ended before a function was chosen");
                    break None;
                }
                // A script has executed another program, which is sampled next.
                (_, Presence::OtherProgram) => {}
                _ => return Err(failure),
            },
        }
    };
    match chosen {
        Some((session, changed)) => {
            let live = Live::renewed(session, AtEnd::TakeOut, Renewal::of(process, None));
            let live = live.limited(measure.max_overhead);
            tell_refused(&changed);
            watch(output, show, live, signals, &FOR_PROGRAM)
        }
        None => {
            signals.release_but(&FOR_PROGRAM);
            Ok(())
        }
    }
}

/// Creates a session with the functions that the user chooses. `None` if none is chosen.
fn choose(
    measure: &Measure,
    options: &Options,
    process: &Process,
    signals: &Signals,
) -> Result<Option<(Session, Changed)>, Failure> {
    let over = |why: &str| Err(Failure::new(OPERATION, process.pid, why));
    let patterns = match find::choose(OPERATION, process, signals)? {
        Wanted::Functions(patterns) => patterns,
        Wanted::Nothing => return Ok(None),
        Wanted::OtherProgram => return over(find::OTHER_PROGRAM),
        Wanted::Over(why) => return over(&why),
    };
    let selected = selected(OPERATION, process, &patterns, &[], measure, options)?;
    let created = Session::create(process, options, selected, Where::Running);
    created.map(Some).map_err(|e| e.failure(OPERATION, process))
}

/// The failure to start a program. If the program has ended, the exit status is its own.
pub(super) fn not_begun(subject: &str, error: LaunchError) -> Failure {
    let failure = Failure::new(OPERATION, subject, &error);
    match error {
        LaunchError::Ended(status) => failure.with_status(status as u8),
        _ => failure,
    }
}

/// Ends a program that has not begun to run, and must not run unmeasured. Returns the failure to
/// measure it. If the program has ended by itself, the exit status is its own.
pub(super) fn refused(child: &mut Child, stopped: Stopped, failure: Failure) -> Failure {
    let status = status_if_ended(child);
    let _ = child.kill();
    drop(stopped);
    let _ = child.wait();
    match status {
        Some(status) => failure.with_status(status as u8),
        None => failure,
    }
}

/// Waits for the program to end and returns its status. `watched` is the result of measuring it,
/// whose failure is returned instead. `collected` gives the status if another thread has collected
/// the program.
pub(super) fn end(
    child: &mut Child,
    mut spool: Spool,
    watched: Result<(), Failure>,
    subject: &str,
    collected: impl Fn() -> Option<i32>,
) -> Result<ExitCode, Failure> {
    let status = wait(child, &mut spool, collected);
    spool.finish();
    watched?;
    let status = status.map_err(|e| Failure::new(OPERATION, subject, io_text(&e)))?;
    if status.signal() == Some(libc::SIGSYS) {
        warn(&format!(
            "{OPERATION} {subject}: a seccomp filter has killed it; if that happens only under \
            ipath, give --no-system-calls"
        ));
    }
    Ok(ExitCode::from(shell_status(status) as u8))
}

/// Waits for the program's end. If the program is killed while its threads are stopped, this
/// process must collect them, or the program does not end.
fn wait(
    child: &mut Child,
    spool: &mut Spool,
    collected: impl Fn() -> Option<i32>,
) -> io::Result<ExitStatus> {
    const PAUSE: Duration = Duration::from_millis(20);
    let pid = Pid(child.id() as i32);
    loop {
        spool.follow();
        if let Some(status) = collected() {
            return Ok(ExitStatus::from_raw(status));
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let others = tids(pid).into_iter().flatten().filter(|tid| tid.0 != pid.0);
        for tid in others {
            // Fails for a thread that is not traced here.
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            let _ = waitpid(unistd::Pid::from_raw(tid.0), Some(flags));
        }
        sleep(PAUSE);
    }
}
