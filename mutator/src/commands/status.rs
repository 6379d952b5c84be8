//! `status`: which sessions there are.

use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::output::print;
use super::remarks::warn;
use super::target::{find, open_all};
use ipath_base::error::Failure;
use ipath_base::printable::{Page, printable, printable_os};
use ipath_profile::clock;
use ipath_profile::report::human;
use ipath_session::segment::{self, Cleaned, Document, SegmentError, named};
use ipath_session::session::{Session, SessionError};
use ipath_target::process::{Pid, Process};

/// A session's process as far as it is seen from here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Living,
    Ended,
    /// It is not seen, and somebody has its segment.
    Elsewhere,
}

impl Seen {
    /// What is seen of a process whose segment has this path, where it has one: before this process has it.
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
                "  no process of this id is here: it is in another pid namespace, or another ipath looks at what it has left"
            }
        }
    }
}

/// Prints the sessions of one process, with what it has started as the launcher of an MPI job or is followed, or all: with a line each, or
/// where it is wanted in full.
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
    // Those without a name, or with one elsewhere, are seen in their processes.
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
            // It has ended since, or a process has begun one just now.
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
                // It may begin with that.
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

/// Removes what sessions of ended processes have left, and says so.
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

/// The session in a line.
fn in_short(session: &Session, seen: Seen) -> String {
    const NAMED: usize = 3;
    let document = session.document();
    let (active, removed): (Vec<_>, Vec<_>) = document.measured().partition(|(_, f)| f.is_in());
    let names: Vec<_> = active
        .iter()
        .take(NAMED)
        .map(|(_, f)| printable(&f.name))
        .collect();
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

/// What a session is of, what it measures, and for how long.
fn head(session: &Session, seen: Seen) -> String {
    let (process, document) = (session.process(), session.document());
    let header = session.segment().header();
    // One that was not finished has no beginning.
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

/// The metrics that functions of a session measure; all that it has where none is in.
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
        let (name, module) = (printable(&function.name), printable(module));
        let measured = document.measured_of(function).join(",");
        // What the first line says is not said again.
        let measured = if !function.role.is_measured() || measured == metrics.join(",") {
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
