//! `status`: the existing sessions.

use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::outcome::WIDTH;
use super::output::print;
use super::remarks::warn;
use super::target::{find, open_all};
use crate::failure::Failure;
use ipath_base::printable::{Page, printable, printable_os};
use ipath_profile::clock;
use ipath_profile::display_name::fit_all;
use ipath_profile::report::human;
use ipath_session::segment::{self, Cleaned, Document, Role, SegmentError, named};
use ipath_session::session::{Session, SessionError};
use ipath_target::process::{Pid, Process};

/// The state of a session's process as seen from this pid namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Living,
    Ended,
    /// Not visible here, but another process has the segment open.
    Elsewhere,
}

impl Seen {
    /// The state of a process. `path` is its segment's path, if it has a name. Must be called
    /// before this process opens the segment.
    fn of(process: &Process, path: Option<&Path>) -> Self {
        match process.has_ended() {
            false => Self::Living,
            true if path.is_some_and(segment::is_in_use) => Self::Elsewhere,
            true => Self::Ended,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Living => "",
            Self::Ended => "  the process has ended",
            Self::Elsewhere => {
                "  there is no process with this id here: it is in another pid namespace, or \
                another ipath uses its remains"
            }
        }
    }
}

/// Prints all sessions, or those of one process and of processes measured with it. Each takes one
/// line, unless `is_verbose` or a process is given.
pub(super) fn status(pid: Option<Pid>, is_verbose: bool) -> Result<(), Failure> {
    if let Some(pid) = pid {
        if !named().iter().any(|(_, p)| p.pid == pid) {
            find("status", pid)?;
        }
        let sessions = open_all("status", pid, Session::open)?;
        let described = sessions.iter().map(|session| {
            let seen = Seen::of(session.process(), None);
            describe(session, seen)
        });
        return print(&Page::of(&described.collect::<String>()));
    }
    let named = named();
    let processes: Vec<Process> = named.iter().map(|(_, process)| process.clone()).collect();
    // Sessions without a name, or with one elsewhere, are found through the maps of their
    // processes.
    let unnamed = segment::mapped(&processes);
    let named = named
        .into_iter()
        .map(|(path, process)| (Some(path), process));
    let all = named.chain(unnamed.into_iter().map(|process| (None, process)));
    let (mut text, mut foreign) = (String::new(), 0);
    for (path, process) in all {
        let seen = Seen::of(&process, path.as_deref());
        match Session::open(&process) {
            Ok(session) => text.push_str(&if is_verbose {
                describe(&session, seen)
            } else {
                format!("{}\n", in_short(&session, seen))
            }),
            // The session has ended since, or is just being created.
            Err(SessionError::Segment(SegmentError::Missing)) => {}
            Err(SessionError::Segment(SegmentError::Io(_, error)))
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                foreign += 1;
            }
            Err(error) => {
                let name = path.map_or_else(
                    || process.pid.to_string(),
                    |path| path.display().to_string(),
                );
                let said = error.to_string();
                // The message may begin with the name.
                let said = said.strip_prefix(&format!("{name}: ")).unwrap_or(&said);
                warn(&format!("status {name}: {said}"));
            }
        }
    }
    if foreign > 0 {
        let sessions = human::count(foreign, "session");
        warn(&format!(
            "status: {sessions} of other users cannot be read: run ipath as root"
        ));
    }
    if text.is_empty() {
        text.push_str(match foreign {
            0 => "no sessions\n",
            _ => "no sessions of yours\n",
        });
    }
    print(&Page::of(&text))
}

/// Removes the remains of sessions whose processes have ended, and prints them.
pub(super) fn clean() -> Result<(), Failure> {
    let mut text = String::new();
    for (path, cleaned) in segment::clean() {
        let path = printable_os(&path);
        match cleaned {
            // Writing to a string does not fail.
            Cleaned::Removed => drop(writeln!(text, "removed {path}")),
            Cleaned::Lives => {}
            Cleaned::Kept(cause) => warn(&format!("status {path}: not removed: {cause}")),
        }
    }
    if text.is_empty() {
        text.push_str("nothing to remove\n");
    }
    print(&Page::of(&text))
}

/// The session on one line.
fn in_short(session: &Session, seen: Seen) -> String {
    const NAMED: usize = 3;
    let document = session.document();
    let (active, removed): (Vec<_>, Vec<_>) = document.measured().partition(|(_, f)| f.is_in());
    let first: Vec<String> = active.iter().take(NAMED).map(|(_, f)| f.title()).collect();
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let names = fit_all(&first, WIDTH);
    let names: Vec<_> = names.iter().map(|name| printable(name)).collect();
    let more = match active.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let active = if names.is_empty() {
        String::new()
    } else {
        format!("  in: {}{more}", names.join(", "))
    };
    let counted = |n: usize, what: &str| match n {
        0 => String::new(),
        n => format!("  {what}: {n}"),
    };
    format!(
        "{}{active}{}{}",
        head(session, seen),
        counted(removed.len(), "removed"),
        counted(document.refused.len(), "refused")
    )
}

/// The line about a session's process, its metrics and its duration.
fn head(session: &Session, seen: Seen) -> String {
    let (process, document) = (session.process(), session.document());
    let header = session.segment().header();
    // A session that was not completed has no start time.
    let started = header.started_tsc.load(Relaxed);
    let ticks = match started {
        0 => 0,
        started => clock::tsc().saturating_sub(started),
    };
    let seconds = ticks / header.clock_hz.load(Relaxed).max(1);
    let metrics = measured(document);
    let (program, _) = ipath_profile::program(&document.exe, &document.args);
    format!(
        "{}  {}  {}  {seconds} s{}",
        process.pid,
        printable(&program),
        printable(&metrics.join(",")),
        seen.text()
    )
}

/// The metrics that functions of a session measure. All its metrics if no function is instrumented.
fn measured(document: &Document) -> Vec<&str> {
    let active = document.measured().filter(|(_, f)| f.is_in());
    let now: HashSet<&str> = active.flat_map(|(_, f)| document.measured_of(f)).collect();
    let all = document.metrics.iter().map(|m| m.name.as_str());
    all.filter(|name| now.is_empty() || now.contains(name))
        .collect()
}

fn describe(session: &Session, seen: Seen) -> String {
    let document = session.document();
    let metrics = measured(document);
    let mut text = format!("{}\n", head(session, seen));
    for (_, function) in document.measured() {
        let state = if function.is_in() { "in" } else { "removed" };
        let module = document
            .modules
            .get(function.module)
            .map_or("", |m| &m.path);
        let (title, module) = (function.title(), printable(module));
        let name = printable(&title);
        let measured = document.measured_of(function).join(",");
        // The metrics in the first line are not repeated.
        let is_measured = matches!(function.role, Role::Measured | Role::Span);
        let measured = if !is_measured || measured == metrics.join(",") {
            String::new()
        } else {
            format!("{}  ", printable(&measured))
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {name}  {module}  {measured}{state}");
    }
    for pending in &document.pending {
        let _ = writeln!(
            text,
            "    {}  waits for libraries",
            printable(&pending.pattern)
        );
    }
    for refused in &document.refused {
        let (name, reason) = (printable(&refused.name), printable(&refused.reason));
        let _ = writeln!(text, "    {name}  refused: {reason}");
    }
    text
}
