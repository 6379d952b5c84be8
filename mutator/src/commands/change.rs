//! `add`, `remove`, `snapshot` and `detach`: changes to a session from any terminal.

use crate::commands::failures::SessionFailure;
use patcher::inside::Part;
use std::path::{Path, PathBuf};

use super::measure::{check, metric_names, metrics, patterns, spots, unwatched, waiting};
use super::outcome::{added, few, listed, tell_refused};
use super::output::print;
use super::processes::sum_of;
use super::rank_file::with_rank;
use super::remarks::warn;
use super::target::{is_family_of, open_all, open_all_of};
use super::watch::{destination, hold};
use crate::cli::Patterns;
use crate::failure::Failure;
use ipath_base::destination::Destination;
use ipath_base::error::io_text;
use ipath_base::hint::{Words, hint};
use ipath_base::printable::Page;
use ipath_profile::merge::PathsOf;
use ipath_profile::{LEFT, Profile, Unseen, printable};
use ipath_session::collect::Collector;
use ipath_session::segment::{Remeasure, family_at, is_in_use, named};
use ipath_session::session::{Ended, Over, Session, SessionError};
use ipath_symbols::debuginfod;
use ipath_target::emulators::Runner;
use ipath_target::process::{Pid, Presence, Process};

/// Fails if the session cannot be changed, because its process has ended or is not traceable now.
fn changeable(process: &Process) -> Result<(), SessionError> {
    Process::find(process.pid).and_then(|found| found.check())?;
    Ok(())
}

fn save(profile: &Profile, to: &Destination, path: &Path) -> Result<(), Failure> {
    let saved = profile.save_to(to);
    saved.map_err(|e| Failure::new("write", path.display(), io_text(&e)))
}

/// The profile of a session. Waits for debug files that are being fetched. `runner` is the emulator
/// or virtual machine that runs the process, if any. `is_left` is true if the process had executed
/// another program before the session was removed.
fn profile(session: &Session, runner: Option<Runner>, is_left: bool) -> Profile {
    let mut collector = Collector::of(session.process());
    collector.set_remark(runner.map(Runner::note));
    collector.set_libraries(session.came_unmeasured().len() as u64);
    let left = is_left.then(|| (Unseen::Programs, LEFT.to_owned()));
    collector.set_left(left.filter(|_| session.document().tells_of_execs));
    let mut profile = collector.profile(session);
    if debuginfod::is_pending() {
        debuginfod::wait(|| false);
        profile = collector.profile(session);
    }
    let document = session.document();
    let is_first = document.family == Some(session.process().id());
    if is_first && !document.tells_of_execs {
        profile.session.notes.push(FOLLOWED.to_owned());
    }
    profile
}

/// The note in the profile of a followed process that was written by another command than the
/// follower.
const FOLLOWED: &str = "processes that ended while a command followed this one are only in the \
    profile of that command";

/// True if a timed part is the paths of a function.
fn times_paths(given: &Patterns) -> bool {
    let mut timed = given.timed.iter().flatten();
    timed.any(|spot| spot.part() == Some(Part::TimedPaths))
}

/// Fails if metrics are given for points, which are only counted: for `add` if nothing that is
/// timed is given beside them, for `remove` if any point or loop is given.
fn check_points(operation: &str, given: &Patterns, metric: &[String]) -> Result<(), Failure> {
    let of_points = match operation {
        "add" => given.func.is_empty() && given.timed.is_empty(),
        _ => given.has_places() || given.inlined,
    };
    if !of_points || metric.is_empty() {
        return Ok(());
    }
    let cause = match (given.inlined, given.timed.is_empty()) {
        (true, _) => "the metrics of an inlined copy do not change in a session",
        (false, true) => "points are only counted",
        (false, false) if times_paths(given) => "the metrics of a path do not change in a session",
        (false, false) => "the metrics of a loop do not change in a session",
    };
    Err(Failure::new(operation, "-m", cause).usage())
}

/// Instruments further functions, or adds metrics to functions, in each session that [`open_all`]
/// finds for the process. With `is_pending`, the patterns also apply to libraries that are loaded
/// later. Prints the result.
pub(super) fn add(
    pid: Pid,
    given: &Patterns,
    metric: &[String],
    is_pending: bool,
) -> Result<(), Failure> {
    const OPERATION: &str = "add";
    let patterns = patterns(OPERATION, &given.func)?;
    let spots = spots(OPERATION, given)?;
    check_points(OPERATION, given, metric)?;
    let remeasure = if metric.is_empty() {
        None
    } else {
        Some(Remeasure::Add(metrics(OPERATION, metric)?))
    };
    let add = |session: &mut Session| {
        let process = session.process().clone();
        let failure = |e: SessionError| e.failure(OPERATION, &process);
        changeable(&process).map_err(failure)?;
        let remeasure = remeasure.clone();
        let mut selected = session.select(&patterns, remeasure).map_err(failure)?;
        selected.find_points(&spots);
        if given.allow_trap {
            selected.selection.allow_traps();
        }
        let subject = process.pid.to_string();
        check(OPERATION, &subject, given, &selected.selection, is_pending)?;
        let said = waiting(&selected.selection);
        let signals = hold(OPERATION)?;
        let changed = if is_pending {
            session.add_awaiting(OPERATION, selected, &patterns)
        } else {
            session.add(OPERATION, selected)
        };
        let changed = changed.map_err(failure)?;
        signals.release();
        tell_refused(&changed);
        said.iter().for_each(|line| warn(line));
        if is_pending && !session.is_watched() {
            warn(&unwatched(process.pid));
        }
        Ok(added(&changed))
    };
    in_each(pid, open_all(OPERATION, pid, Session::open_to_change)?, add)
}

/// Changes each of these sessions, of one process or of the descendants of `pid`. Prints each
/// distinct text that `change` returns once. A failure in one session does not keep the others from
/// being changed.
///
/// # Errors
/// The first failure. The others are printed.
fn in_each(
    pid: Pid,
    sessions: Vec<Session>,
    mut change: impl FnMut(&mut Session) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let (mut said, mut failed): (Vec<String>, Vec<Failure>) = (Vec::new(), Vec::new());
    let mut failed_in_all: Vec<Failure> = Vec::new();
    let all = sessions.len();
    for mut session in sessions {
        match change(&mut session) {
            Ok(text) if text.is_empty() || said.contains(&text) => {}
            Ok(text) => said.push(text),
            Err(failure) => {
                failed_in_all.push(failure.clone().about(session.process().pid, pid));
                failed.push(failure);
            }
        }
    }
    failed_in_all.dedup();
    if failed.len() == all && failed_in_all.len() == 1 {
        failed = failed_in_all;
    }
    if !said.is_empty() {
        print(&Page::of(&(said.join("\n") + "\n")))?;
    }
    let mut failed = failed.into_iter();
    let first = failed.next();
    failed.for_each(|failure| warn(&failure.in_one_line()));
    first.map_or(Ok(()), Err)
}

/// Begins a phase in each session that [`open_all`] finds for the process. Prints its name.
///
/// # Errors
/// The name is empty or too long, or a session cannot be changed.
pub(super) fn mark(pid: Pid, name: &str) -> Result<(), Failure> {
    const OPERATION: &str = "mark";
    /// The maximum length of a name, in bytes.
    const LONGEST: usize = 200;
    let subject = printable(name).into_owned();
    if name.trim().is_empty() {
        return Err(Failure::new(OPERATION, pid, "the name of the phase is empty").usage());
    }
    if name.len() > LONGEST || name.contains(char::is_control) {
        let cause = format!("a name has at most {LONGEST} bytes and no control characters");
        return Err(Failure::new(OPERATION, subject, cause).usage());
    }
    let begin = |session: &mut Session| {
        let process = session.process().clone();
        let failure = |e: SessionError| e.failure(OPERATION, &process);
        changeable(&process).map_err(failure)?;
        Ok(match session.mark(name).map_err(failure)? {
            Some(title) => format!("phase {}", printable(&title)),
            None => "too many phases: all further ones share one".to_owned(),
        })
    };
    in_each(
        pid,
        open_all(OPERATION, pid, Session::open_to_change)?,
        begin,
    )
}

/// Removes functions from each session that [`open_all`] finds for the process. With metrics,
/// removes only these metrics from the functions. Prints the result.
///
/// # Errors
/// A pattern matches no instrumented function, or a session cannot be changed.
pub(super) fn remove(pid: Pid, given: &Patterns, metric: &[String]) -> Result<(), Failure> {
    const OPERATION: &str = "remove";
    let patterns = patterns(OPERATION, &given.func)?;
    let spots = spots(OPERATION, given)?;
    check_points(OPERATION, given, metric)?;
    let names = metric_names(OPERATION, metric)?;
    let remove = |session: &mut Session| {
        let process = session.process().clone();
        let failure = |e: SessionError| e.failure(OPERATION, &process);
        changeable(&process).map_err(failure)?;
        let (mut ids, mut are_in) = (Vec::new(), Vec::new());
        let mut take = |session: &Session, text: &str, found: Vec<usize>, waits: bool| {
            let functions = &session.document().functions;
            if !waits && !found.iter().any(|&id| functions[id].is_in()) {
                let active = session.document().measured().filter(|(_, f)| f.is_in());
                let names: Vec<String> = active.map(|(_, f)| f.title()).collect();
                let cause = format!("no instrumented function matches '{text}'");
                let shown = few(&names);
                let hint = match names.len() - shown.len() {
                    _ if names.is_empty() => "nothing is instrumented".into(),
                    0 => hint!("instrumented functions: {}", Words(&shown)),
                    more => hint!(
                        "instrumented functions: {} and {} more",
                        Words(&shown),
                        more
                    ),
                };
                return Err(Failure::new(OPERATION, process.pid, cause).hint(hint));
            }
            let active = found.iter().map(|&id| &functions[id]).filter(|f| f.is_in());
            are_in.extend(active.map(|f| f.title()));
            ids.extend(found);
            Ok(())
        };
        for pattern in &patterns {
            let found = session.matching(std::slice::from_ref(pattern));
            // A pattern that waits is enough. Metrics are only removed from functions that exist.
            let waits = names.is_empty() && session.document().is_awaited(pattern);
            let mut found = found.map_err(failure)?;
            // The function or its copies are enough.
            let mut of_copies = spots.iter().filter(|spot| spot.is_of_copies());
            let of_copies = of_copies.find(|spot| spot.text() == pattern.text());
            if let Some(spot) = of_copies {
                let more = session.points_at(std::slice::from_ref(spot));
                found.extend(more.map_err(failure)?);
            }
            take(session, pattern.text(), found, waits)?;
        }
        for spot in spots.iter().filter(|spot| !spot.is_of_copies()) {
            let found = session.points_at(std::slice::from_ref(spot));
            take(session, spot.text(), found.map_err(failure)?, false)?;
        }
        ids.sort_unstable();
        ids.dedup();
        let signals = hold(OPERATION)?;
        if !names.is_empty() {
            let changed = session.take_metrics(&ids, names.clone()).map_err(failure)?;
            signals.release();
            tell_refused(&changed);
            return Ok(added(&changed));
        }
        let removed = session.remove_awaited(&ids, &patterns);
        let (mut removed, changed) = removed.map_err(failure)?;
        signals.release();
        removed
            .iter_mut()
            .for_each(|text| *text = format!("'{text}', which was pending"));
        removed.extend(changed.functions);
        // If a killed command had removed them halfway, that removal has been completed first.
        if removed.is_empty() {
            are_in.dedup();
            removed = are_in;
        }
        Ok(format!("removed {}", listed(&removed)))
    };
    in_each(
        pid,
        open_all(OPERATION, pid, Session::open_to_change)?,
        remove,
    )
}

/// Writes the current profile of each session that [`open_all`] finds for the process to `output`.
pub(super) fn snapshot(pid: Pid, output: &Path) -> Result<(), Failure> {
    let sessions = open_all("snapshot", pid, Session::open)?;
    let to = Places::of(output, sessions.iter().map(|s| s.document().rank))?;
    let of = |session: &Session| profile(session, Runner::of_process(session.process()), false);
    to.save("snapshot", sessions.iter().map(of).enumerate().collect())
}

/// The files for the profiles of sessions: one per rank if the name contains the rank, else one for
/// all.
struct Places {
    files: Vec<(Destination, PathBuf)>,
    /// For each session, the index of its file in `files`.
    of_sessions: Vec<usize>,
}

impl Places {
    /// Opens the files for sessions with these ranks.
    fn of(output: &Path, ranks: impl Iterator<Item = Option<u32>>) -> Result<Self, Failure> {
        let (mut files, mut of_sessions) = (Vec::new(), Vec::new());
        for rank in ranks {
            let path = with_rank(output, rank)?;
            let known = files.iter().position(|(_, known)| *known == path);
            of_sessions.push(known.unwrap_or(files.len()));
            if known.is_none() {
                files.push((destination(&path)?, path));
            }
        }
        Ok(Self { files, of_sessions })
    }

    /// Writes profiles, each given with the index of its session. Profiles for the same file are
    /// added up.
    fn save(&self, operation: &str, profiles: Vec<(usize, Profile)>) -> Result<(), Failure> {
        let mut of_files: Vec<Vec<Profile>> = vec![Vec::new(); self.files.len()];
        for (session, profile) in profiles {
            of_files[self.of_sessions[session]].push(profile);
        }
        let written = self.files.iter().zip(of_files);
        let mut written = written.filter(|(_, profiles)| !profiles.is_empty());
        written.try_for_each(|((to, path), profiles)| save(&sum(operation, profiles)?, to, path))
    }
}

/// Adds up profiles. A single profile is unchanged.
fn sum(operation: &str, mut profiles: Vec<Profile>) -> Result<Profile, Failure> {
    match profiles.len() {
        1 => Ok(profiles.remove(0)),
        _ => sum_of(operation, PathsOf::All, profiles.iter()),
    }
}

/// Removes a session from its process, and the sessions of its family from theirs. The family is
/// the processes that one command measures together. Also removes the remains of ended processes of
/// the family. Writes their final profiles to `output`, if given.
pub(super) fn detach(pid: Pid, output: Option<&Path>) -> Result<(), Failure> {
    const OPERATION: &str = "detach";
    let named = named();
    let left = Left::by_family_of(pid, &named);
    let sessions = match open_all_of(&named, OPERATION, pid, Session::open_to_change) {
        Err(_) if !left.is_empty() => Vec::new(),
        opened => opened?,
    };
    let ranks = sessions.iter().map(|session| session.document().rank);
    let ranks = ranks.chain(left.iter().map(|left| left.rank));
    let to = output.map(|output| Places::of(output, ranks));
    let to = to.transpose()?;
    let (mut profiles, mut index) = (Vec::new(), 0);
    let mut take = |session: &mut Session, is_left: bool| {
        let own = index;
        index += 1;
        let profile = take_out(session, to.is_some(), is_left)?;
        profiles.extend(profile.map(|profile| (own, profile)));
        Ok(String::new())
    };
    let done = in_each(pid, sessions, |session| take(session, false));
    let mut removed = 0;
    // One after another, because each takes a descriptor and memory.
    for Left { process, .. } in left {
        let taken = Session::open_to_change(&process)
            .map_err(|e| e.failure(OPERATION, &process))
            .and_then(|mut session| take(&mut session, true));
        match taken {
            Ok(_) => removed += 1,
            Err(failure) => warn(&failure.in_one_line()),
        }
    }
    if removed > 0 {
        warn(&format!(
            "detach {pid}: {removed} of its processes had ended: their remains are removed"
        ));
    }
    if let Some(to) = to {
        to.save(OPERATION, profiles)?;
    }
    done
}

/// The remains of a session in a process that has ended.
struct Left {
    process: Process,
    rank: Option<u32>,
}

impl Left {
    /// The remains of ended processes in the family of the process with this id, which may have
    /// ended too.
    fn by_family_of(pid: Pid, named: &[(PathBuf, Process)]) -> Vec<Self> {
        let first = Process::find(pid).ok();
        let of = |(path, process): &(PathBuf, Process)| {
            if process.pid == pid || process.life() != Presence::Ended || is_in_use(path) {
                return None;
            }
            if !is_family_of(family_at(path), pid, first.as_ref()) {
                return None;
            }
            let rank = Session::open(process).ok()?.document().rank;
            let process = process.clone();
            Some(Self { process, rank })
        };
        named.iter().filter_map(of).collect()
    }
}

/// Removes a session, and returns its profile if `is_wanted`. Reports that the process had ended,
/// unless that `is_known`.
fn take_out(
    session: &mut Session,
    is_wanted: bool,
    is_known: bool,
) -> Result<Option<Profile>, Failure> {
    const OPERATION: &str = "detach";
    let process = session.process().clone();
    let failure = |e: SessionError| e.failure(OPERATION, &process);
    match changeable(&process) {
        Err(error) if process.settled() != Presence::Ended => return Err(failure(error)),
        _ => {}
    }
    let runner = Runner::of_process(&process);
    let signals = hold(OPERATION)?;
    let is_left = session.over() == Ok(Some(Over::OtherProgram));
    let ended = session.detach().map_err(failure)?;
    signals.release();
    let profile = is_wanted.then(|| profile(session, runner, is_left));
    if ended == Ended::TargetGone && !is_known {
        let pid = process.pid;
        warn(&format!(
            "detach {pid}: the program had ended or executed another one (exec)"
        ));
    }
    Ok(profile)
}
