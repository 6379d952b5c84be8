//! `--follow`: measures a process together with all processes that it starts.

use crate::commands::failures::{SessionFailure, unmeasured};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::existing::{is_of_family, refuse_existing, refuse_existing_of_tree};
use super::kind::Failed;
use super::later::Later;
use super::live::{AtEnd, Live, Watched};
use super::measure::{MANY, check_found, options, paths_of, patterns, spots};
use super::others::{tell_left_out, tree};
use super::outcome::tell_refused;
use super::processes::{Following, Job};
use super::rank_file::of_own_rank;
use super::remarks::warn;
use super::run::{FOR_PROGRAM, OPERATION as RUN, end, not_begun, refused};
use super::search::{self, Prey, Searching};
use super::spool::Spool;
use super::target::{find, target_of};
use super::tree::no_match;
use super::unbegun::Unbegun;
use super::watch::{Watch, enders, hold, watch};
use crate::cli::{Measure, Refine, Show};
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_profile::{COUNT, Metric, Profile, Session as During};
use ipath_session::follow::{Follower, Progress, Wanted};
use ipath_session::launch::{self, Launched, launch};
use ipath_session::session::{
    Answering, Changed, Departures, Options, Selected, Session, SessionError, Where,
    has_leak_check, select_in, select_stopped,
};
use ipath_target::process::{Pid, Presence, Process, Space, tids};
use ipath_target::tracee::{TraceeError, followed, tracing};

const ATTACH: &str = "attach";

/// The number of attempts to inspect a process that called exec before it was followed.
const TRIES: usize = 20;
/// The time between two of these attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Checks the options that can be checked before the program exists.
fn wanted(operation: &str, subject: &str, measure: &Measure) -> Result<Wanted, Failure> {
    let patterns = patterns(operation, &measure.patterns.func)?;
    let spots = spots(operation, &measure.patterns)?;
    let options = Options {
        // Following already reports every exec.
        tells_of_execs: false,
        ..options(operation, measure)?
    };
    if patterns.is_empty() && spots.is_empty() {
        let cause = "no function is named, and --follow does not offer functions to choose from";
        return Err(Failure::new(operation, subject, cause).hint(
            "name functions with -f; `ipath suggest PID` lists functions worth measuring in one \
            process",
        ));
    }
    Ok(Wanted {
        patterns,
        spots,
        options,
        allows_traps: measure.patterns.allow_trap,
        most: if measure.patterns.yes {
            abi::MOST_FUNCTIONS
        } else {
            MANY
        },
        why: unmeasured,
        met: Arc::default(),
    })
}

fn begin(operation: &str, measure: &Measure, wanted: &Wanted) -> Result<Follower, Failure> {
    let begun = Follower::begin(wanted.clone(), paths_of(measure.per_process));
    begun.map_err(|e| Failure::new(operation, "--follow", io_text(&e)))
}

/// Measures a running process and the processes that it starts later. With `children`, also
/// measures its present descendants.
pub(super) fn attach(
    pid: Pid,
    children: bool,
    measure: &Measure,
    show: &Show,
) -> Result<(), Failure> {
    let mut wanted = wanted(ATTACH, &pid.to_string(), measure)?;
    let output = Watch::new(show)?;
    let process = find(ATTACH, pid)?;
    wanted.options.family = Some(process.clone());
    let failure = |e: SessionError| e.failure(ATTACH, &process);
    process.check().map_err(|e| failure(e.into()))?;
    if children {
        refuse_existing_of_tree(&process)?
    } else {
        refuse_existing(&process)?
    }
    let select = || {
        let selected = select_in(&process, &wanted.patterns, wanted.options.wanted());
        selected.map(|selected| (Arc::clone(&selected.space), selected))
    };
    let found = |selected| found(ATTACH, &process, measure, &wanted, selected);
    let first = match select() {
        Ok((space, selected)) => Some((space, found(selected)?)),
        // The new program is inspected once it is followed.
        Err(error) if error.is_gone() && !process.has_ended() => None,
        Err(error) => return Err(failure(error)),
    };
    let signals = hold(ATTACH)?;
    let follower = begin(ATTACH, measure, &wanted)?;
    let nothing = nothing(&process);
    let alike = process.alike_descendants();
    // The follower measures the process after an exec, and processes that it started meanwhile.
    let is_followed_on = |error: &SessionError| match error {
        SessionError::Exists => follower.seen().measured > 0,
        error => (error.is_gone() || process.has_ended()) && follower.seen().living > 0,
    };
    let make = |selected: Option<Selected>| {
        let Some(selected) = selected else {
            return Ok(None);
        };
        match Session::create(
            &process,
            &options_in(&wanted, &selected),
            selected,
            Where::Running,
        ) {
            Err(error) if is_followed_on(&error) => Ok(None),
            made => made.map(Some).map_err(failure),
        }
    };
    // The other processes do not wait for it.
    let is_later = children && process.waits_for_child();
    let create = || {
        let followed = follower.follow(&process, None);
        followed.map_err(|e| failure(e.into()))?;
        if is_later {
            return Ok(None);
        }
        let is_still = |space: &Space| space.is_current() != Presence::OtherProgram;
        if let Some((_, selected)) = first.filter(|(space, _)| is_still(space)) {
            return make(selected);
        }
        // It executed another program before it was followed, and that program may still be
        // loading.
        let again = || {
            sleep(PAUSE);
            let (_, selected) = select().map_err(failure)?;
            make(found(selected)?)
        };
        let mut tries = std::iter::repeat_with(again).take(TRIES);
        match tries.find(Result::is_ok) {
            Some(made) => made,
            // The follower measures the next program.
            None if process.life() == Presence::Here => Ok(None),
            None => Err(failure(SessionError::Gone(Presence::Ended))),
        }
    };
    let (created, failed) = match create() {
        Ok(created) => (created, None),
        Err(failure) => (None, Some(failure)),
    };
    let mut others = Others::default();
    if is_later {
        others.waiting.push(process.clone());
    }
    if children && failed.is_none() {
        others.begin(&follower, &process, measure, &wanted);
    }
    follower.begin_held();
    ipath_session::segment::sweep();
    let departures = follower.departures();
    let (progress, mut job) = job(
        follower,
        &process,
        &wanted,
        (nothing, measure.max_overhead),
        created,
    );
    if let Some(failure) = failed {
        // Processes started meanwhile may be measured.
        let _ = job.finish();
        return Err(failure);
    }
    let later = others.enter(&mut job, &progress, &departures);
    let most = measure.max_overhead;
    let create = |process: &Process| {
        let made = make_one(process, measure, &wanted)?;
        Ok(made.map(|(session, changed)| {
            progress.note_measured();
            let live = answered(session, Arc::clone(&departures));
            (live.limited(most), changed)
        }))
    };
    job.set_later(Later::new(later, create));
    if !children {
        let otherwise = "--children measures them, too; processes that start from now on are \
            measured";
        let unmeasured = tell_left_out(ATTACH, pid, alike, "measured", otherwise);
        unmeasured.into_iter().for_each(|said| job.note(said));
    }
    watch(&output, show, job, signals, &[])?;
    check_measured(ATTACH, &process, &wanted, &progress)
}

/// The existing descendants of a process when following begins.
#[derive(Default)]
struct Others {
    made: Vec<(Session, Changed)>,
    failed: Vec<Failed>,
    /// The processes that cannot stop before a child of vfork(2) ends or calls exec.
    waiting: Vec<Process>,
}

impl Others {
    /// Follows each descendant and creates a session in it, until no new ones are found.
    fn begin(&mut self, follower: &Follower, root: &Process, measure: &Measure, wanted: &Wanted) {
        let mut known = BTreeSet::from([root.pid]);
        loop {
            let mut processes = tree(root);
            processes.retain(|p| known.insert(p.pid) && !follower.is_following(p.pid));
            if processes.is_empty() {
                return;
            }
            for process in processes {
                let followed = follow_one(follower, &process);
                if followed.is_ok() && process.waits_for_child() {
                    self.waiting.push(process);
                    continue;
                }
                match followed.and_then(|()| make_one(&process, measure, wanted)) {
                    Ok(made) => self.made.extend(made),
                    Err(failure) => {
                        let number = process.pid.0 as u32;
                        self.failed.push((number, process, failure));
                    }
                }
            }
        }
    }

    /// Adds the sessions to the job. Returns the waiting processes with their process ids.
    fn enter(
        self,
        job: &mut Job<'_>,
        progress: &Progress,
        departures: &Arc<dyn Departures>,
    ) -> Vec<(u32, Process)> {
        for (session, changed) in self.made {
            let number = session.process().pid.0 as u32;
            let live = answered(session, Arc::clone(departures));
            job.enter_new(number, live, &changed);
            progress.note_measured();
        }
        job.tell_unmeasured(&self.failed);
        let numbered = self.waiting.into_iter().map(|p| (p.pid.0 as u32, p));
        numbered.collect()
    }
}

/// Follows a descendant.
fn follow_one(follower: &Follower, process: &Process) -> Result<(), Failure> {
    let failure = |e: SessionError| e.failure(ATTACH, process);
    let parent = process.parent();
    process.check().map_err(|e| failure(e.into()))?;
    let followed = follower.follow(process, parent.or(Some(process.pid)));
    followed.map_err(|e| failure(e.into()))
}

/// Creates a session in a followed process. Returns `None` if the follower does so, because the
/// process has called exec or was found before.
fn make_one(
    process: &Process,
    measure: &Measure,
    wanted: &Wanted,
) -> Result<Option<(Session, Changed)>, Failure> {
    let failure = |e: SessionError| e.failure(ATTACH, process);
    let family = wanted.options.family.as_ref();
    let is_followed_on = |error: &SessionError| match error {
        SessionError::Exists => is_of_family(process, family),
        error => error.is_gone() && !process.has_ended(),
    };
    let selected = match select_in(process, &wanted.patterns, wanted.options.wanted()) {
        Err(error) if is_followed_on(&error) => return Ok(None),
        selected => selected.map_err(failure)?,
    };
    let found = found(ATTACH, process, measure, wanted, selected)?;
    let selected = found.ok_or_else(|| no_match(process, wanted.texts()))?;
    let parent = process.parent().filter(|_| family != Some(process));
    let options = Options {
        parent: parent.map(|pid| pid.0),
        ..options_in(wanted, &selected)
    };
    match Session::create(process, &options, selected, Where::Running) {
        Err(error) if is_followed_on(&error) => Ok(None),
        made => made.map(Some).map_err(failure),
    }
}

/// Starts a program. Measures it with all processes that it starts, or searches in them. Ends with
/// the status of the program.
pub(super) fn run(
    measure: &Measure,
    refine: &Refine,
    show: &Show,
    program: &[OsString],
) -> Result<ExitCode, Failure> {
    let show = &of_own_rank(show)?;
    let subject = program.first().map_or(OsStr::new(""), |p| p);
    let name = subject.to_string_lossy().into_owned();
    let unknown = |e| not_begun(&name, e);
    let search = if refine.search {
        let mut options = options(RUN, measure)?;
        let search = Searching::new(RUN, (measure, refine, show), &mut options)?;
        Some((search, options))
    } else {
        None
    };
    let wanted = match &search {
        Some((_, options)) => {
            let patterns = patterns(RUN, &measure.patterns.func)?;
            search::wanted(measure, &patterns, options)
        }
        None => wanted(RUN, &name, measure)?,
    };
    let output = Watch::beside_program(show)?;
    launch::check(subject).map_err(|e| Failure::new(RUN, &name, e))?;
    let spool = if output.is_view() && search.is_none() {
        Spool::new()
    } else {
        Spool::default()
    };
    let signals = hold(RUN)?;
    let before = signals.before();
    let enders = enders(RUN, &signals)?;
    let follower = begin(RUN, measure, &wanted)?;
    // A thread has only one tracer, so the tracer thread starts the program.
    let begun = tracing(|| {
        let launched = launch(program, before, |c| spool.redirect(c)).map_err(unknown)?;
        let pid = launched.process.pid;
        let unbegun = Unbegun::watch(RUN, &name, pid, enders);
        begin_program(launched, measure, &wanted, unbegun)
    });
    let Begun {
        mut child,
        process,
        nothing,
        created,
    } = begun?;
    follower.adopt(&process);
    if let Some((search, options)) = search {
        let progress = follower.progress();
        let live = created.map(|created| first(created, &follower, &progress));
        let preys = vec![Prey::of(&process)];
        let signals = (signals, &FOR_PROGRAM[..]);
        let parts = (preys, live, Some(follower));
        let searched = search.search(&process, parts, &output, &options, signals);
        return end(&mut child, spool, searched, &name, || progress.status());
    }
    let (progress, job) = job(
        follower,
        &process,
        &wanted,
        (nothing, measure.max_overhead),
        created,
    );
    let watched = watch(&output, show, job, signals, &FOR_PROGRAM);
    let watched = watched.and_then(|()| check_measured(RUN, &process, &wanted, &progress));
    end(&mut child, spool, watched, &name, || progress.status())
}

/// A started program.
struct Begun {
    child: Child,
    process: Process,
    /// An empty profile of the program.
    nothing: Profile,
    created: Option<(Session, Changed)>,
}

/// Instruments a started program and resumes it. It stays traced. If it cannot be instrumented, it
/// is killed.
fn begin_program(
    launched: Launched,
    measure: &Measure,
    wanted: &Wanted,
    unbegun: Unbegun,
) -> Result<Begun, Failure> {
    let Launched {
        mut child,
        process,
        mut stopped,
    } = launched;
    let prepare = || {
        // Dropped here on every path.
        let unbegun = unbegun;
        let failure = |e: SessionError| e.failure(RUN, &process);
        let space = Arc::clone(stopped.space());
        let effects = wanted.options.wanted();
        let selected = select_stopped(space, &wanted.patterns, effects, Some(&mut stopped), false);
        let selected = found(RUN, &process, measure, wanted, selected.map_err(failure)?)?;
        selected.iter().for_each(Selected::prepare);
        unbegun.end_watch();
        let created = selected.map(|selected| {
            let held = Where::Stopped(&mut stopped);
            Session::create(&process, &options_in(wanted, &selected), selected, held)
                .map_err(failure)
        });
        let created = created.transpose()?;
        created.iter().for_each(|(session, _)| session.note_begin());
        Ok(created)
    };
    match prepare() {
        Ok(created) => {
            for tid in tids(process.pid).into_iter().flatten() {
                let _ = followed::enter(tid);
            }
            let nothing = nothing(&process);
            let resumed = stopped.resume();
            resumed.map_err(|e: TraceeError| Failure::new(RUN, process.pid, e))?;
            Ok(Begun {
                child,
                process,
                nothing,
                created,
            })
        }
        Err(failure) => Err(refused(&mut child, stopped, failure)),
    }
}

/// Checks the selection for a process. `None` if nothing matches in it and no pattern waits for
/// libraries, since processes that it starts may have matches. A program with LeakSanitizer gets a
/// session even without a match.
fn found(
    operation: &str,
    process: &Process,
    measure: &Measure,
    wanted: &Wanted,
    mut selected: Selected,
) -> Result<Option<Selected>, Failure> {
    selected.complete(&wanted.spots, wanted.allows_traps, &wanted.options.items());
    wanted.note(&selected.selection);
    let may_come = !wanted.options.pending.is_empty() || has_leak_check(&selected.modules);
    if selected.selection.count() == 0 && !may_come {
        return Ok(None);
    }
    let subject = process.pid.to_string();
    if selected.selection.count() > 0 {
        check_found(operation, &subject, &measure.patterns, &selected.selection)?;
    }
    Ok(Some(selected))
}

/// The session options for a followed program. A program with LeakSanitizer is detached before it
/// exits.
fn options_in(wanted: &Wanted, selected: &Selected) -> Options {
    Options {
        tells_of_exits: has_leak_check(&selected.modules),
        ..wanted.options.clone()
    }
}

/// The job of a followed process and the processes that it starts.
fn job(
    follower: Follower,
    process: &Process,
    wanted: &Wanted,
    (nothing, most): (Profile, Option<f64>),
    created: Option<(Session, Changed)>,
) -> (Progress, Job<'static>) {
    let progress = follower.progress();
    let live = created.map(|created| first(created, &follower, &progress).limited(most));
    let following = Following {
        follower,
        wanted: wanted.clone(),
        first: process.clone(),
        nothing,
        most,
        since: Instant::now(),
    };
    (progress, Job::following(following, live))
}

/// A session whose runtime gets the follower's information on ended processes.
fn answered(session: Session, departures: Arc<dyn Departures>) -> Live {
    let answering = Answering::begin(session.process(), Some(departures), true);
    Live::answered(session, AtEnd::TakeOut, Some(answering))
}

/// Watches the session of the first process. Prints the functions that were refused.
fn first((session, changed): (Session, Changed), follower: &Follower, progress: &Progress) -> Live {
    let live = answered(session, follower.departures());
    tell_refused(&changed);
    progress.note_measured();
    live
}

/// An empty profile of a process. Taken early: a running process may end, and its name with it.
fn nothing(process: &Process) -> Profile {
    let target = target_of(process);
    let during = During {
        started_unix_ns: ipath_profile::clock::unix_ns(),
        ..During::default()
    };
    let count = Metric {
        name: COUNT.to_owned(),
        unit: "calls".to_owned(),
        since_ns: None,
    };
    Profile::empty(target, during, vec![count])
}

/// Fails if nothing was measured in any program. Otherwise warns about the patterns that matched in
/// none.
fn check_measured(
    operation: &str,
    process: &Process,
    wanted: &Wanted,
    progress: &Progress,
) -> Result<(), Failure> {
    let seen = progress.seen();
    let quoted = |texts: &[&str]| {
        let quoted: Vec<String> = texts.iter().map(|text| format!("'{text}'")).collect();
        quoted.join(" or ")
    };
    let unmatched = |texts: &[&str]| {
        let programs = match seen.programs {
            0 => String::new(),
            1 => ", nor in the program that it has started".to_owned(),
            n => format!(", nor in any of the {n} programs that it has started"),
        };
        let cause = format!("no function in it matches {}{programs}", quoted(texts));
        Failure::new(operation, process.pid, cause).hint(
            "`ipath list FILE PATTERN` shows the functions that a pattern matches in a \
                program",
        )
    };
    if seen.measured > 0 {
        let unmet = wanted.unmet();
        // Patterns that wait for libraries are reported elsewhere.
        if !unmet.is_empty() && wanted.options.pending.is_empty() {
            warn(&unmatched(&unmet).to_string());
        }
        return Ok(());
    }
    let texts: Vec<&str> = wanted.texts().collect();
    if seen.with_too_many > 0 {
        let cause = format!(
            "more than {} functions match {}",
            wanted.most,
            quoted(&texts)
        );
        let hint = "name fewer, or give --yes to instrument them all";
        return Err(Failure::new(operation, process.pid, cause).hint(hint));
    }
    Err(unmatched(&texts))
}
