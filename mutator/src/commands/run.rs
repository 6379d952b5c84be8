//! `run`: a program under observation from its first instruction.

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
use ipath_base::error::{Failure, io_text};
use ipath_session::launch::{self, LaunchError, Launched, launch};
use ipath_session::session::{Changed, Options, Session, SessionError, Where, select_stopped};
use ipath_target::process::{Pid, Presence, Process, Space, tids};
use ipath_target::signals::Signals;
use ipath_target::tracee::TraceeError;

pub(super) const OPERATION: &str = "run";

/// What the terminal sends for Ctrl-C and Ctrl-\ the program has got too, and it may go on.
pub(super) const FOR_PROGRAM: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

/// Starts a program, instruments it, watches it, and ends as it ends.
pub(super) fn run(
    measure: &Measure,
    refine: &Refine,
    show: &Show,
    program: &[OsString],
) -> Result<ExitCode, Failure> {
    let show = &of_own_rank(show)?;
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns.at)?;
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
    let unknown = |e: LaunchError| Failure::new(OPERATION, &subject, e);
    launch::check(program.first().map_or(OsStr::new(""), |p| p))
        .map_err(|e| Failure::new(OPERATION, &subject, e))?;
    let is_to_choose = search.is_none() && patterns.is_empty() && spots.is_empty();
    if is_to_choose && !output.is_view() {
        let hint = "name functions with -f, or have them found with --search; `ipath suggest PID` lists those worth it of a process that runs";
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
        // Dropped here, whatever comes of it.
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
        Err(failure) => {
            // The program has not begun, and shall not without what was asked for.
            let _ = child.kill();
            drop(stopped);
            let _ = child.wait();
            return Err(failure);
        }
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
        live
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
        // A function is named where nothing is searched for.
        (None, None) => Ok(()),
    };
    let missing = missing.filter(|_| !renewal.has_renewed());
    let watched = watched.and_then(|()| missing.map_or(Ok(()), Err));
    end(&mut child, spool, watched, &subject, || None)
}

/// Has functions chosen while the program runs, and watches what they cost. Who chooses none lets it run on.
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
                said("nothing is chosen: the program goes on, and Ctrl-C ends it");
                break None;
            }
            Err(failure) if failure.is_internal() => return Err(failure),
            Err(failure) => match (process.life(), is_there()) {
                (Presence::Ended, _) => {
                    said("it has ended before a function was chosen");
                    break None;
                }
                // A script has become the program that it starts: that is what is to be looked at.
                (_, Presence::OtherProgram) => {}
                _ => return Err(failure),
            },
        }
    };
    match chosen {
        Some((session, changed)) => {
            let live = Live::renewed(session, AtEnd::TakeOut, Renewal::of(process, None));
            tell_refused(&changed);
            watch(output, show, live, signals, &FOR_PROGRAM)
        }
        None => {
            signals.release_but(&FOR_PROGRAM);
            Ok(())
        }
    }
}

/// A session with the functions that the user chooses; none where none is wanted.
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

/// Ends as the program ends, once it has: with the status of who has `collected` it, if somebody has.
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
            "{OPERATION} {subject}: a seccomp filter has ended it; if it does so only under ipath, --no-system-calls has the runtime make none"
        ));
    }
    Ok(exit_code(status))
}

/// Waits for the program's end. A thread that was stopped when the program was killed is this process's to
/// collect, and before it is the program has not ended.
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
            // One that is nobody's to collect is no child.
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            let _ = waitpid(unistd::Pid::from_raw(tid.0), Some(flags));
        }
        sleep(PAUSE);
    }
}

/// The program's own status; 128 + N for signal N, as shells have it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or(status.signal().map(|n| 128 + n))
        .unwrap_or(1);
    ExitCode::from(code as u8)
}
