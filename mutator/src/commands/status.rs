//! `status`: the existing sessions.

use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use unicode_width::UnicodeWidthStr;

use super::outcome::WIDTH;
use super::output::print;
use super::remarks::warn;
use super::target::{find, open_all};
use super::watch::screen;
use crate::failure::Failure;
use ipath_base::printable::{Page, printable, printable_os};
use ipath_profile::clock;
use ipath_profile::display_name::{fit_all, fit_each};
use ipath_profile::report::{self, human};
use ipath_session::segment::{self, Cleaned, Document, Role, SegmentError, ThrottledDoc, named};
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
/// line, unless `is_verbose` or a process is given. Names are shortened to fit a terminal, unless
/// `is_verbose`.
pub(super) fn status(pid: Option<Pid>, is_verbose: bool) -> Result<(), Failure> {
    let columns = screen().map(|screen| screen.width);
    let columns = columns.filter(|_| !is_verbose);
    if let Some(pid) = pid {
        if !named().iter().any(|(_, p)| p.pid == pid) {
            find("status", pid)?;
        }
        let sessions = open_all("status", pid, Session::open)?;
        let described = sessions.iter().map(|session| {
            let seen = Seen::of(session.process(), None);
            describe(session, seen, columns)
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
                describe(&session, seen, columns)
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

/// A line about a function.
struct Line {
    name: String,
    /// Appended to the name, which may be shortened: `:edges`.
    part: String,
    rest: String,
}

/// The lines, in at most about `columns` columns. `None` if names are whole.
fn fitted(lines: &[Line], columns: Option<usize>) -> Vec<String> {
    /// The least columns of a name.
    const LEAST: usize = 30;
    const MARGIN: &str = "    ";
    const GAP: &str = "  ";
    let room = |line: &Line, columns: usize| {
        let taken = MARGIN.width() + line.part.width() + GAP.width() + line.rest.width();
        columns.saturating_sub(taken).max(LEAST)
    };
    let names = match columns {
        Some(columns) => {
            let names = lines.iter();
            let names = names.map(|line| (&*line.name, room(line, columns)));
            fit_each(&names.collect::<Vec<_>>())
        }
        None => lines.iter().map(|line| line.name.clone()).collect(),
    };
    let lines = names.iter().zip(lines);
    let lines =
        lines.map(|(name, Line { part, rest, .. })| format!("{MARGIN}{name}{part}{GAP}{rest}\n"));
    lines.collect()
}

fn describe(session: &Session, seen: Seen, columns: Option<usize>) -> String {
    let document = session.document();
    let metrics = measured(document);
    let mut lines = Vec::new();
    for (_, function) in document.measured() {
        let state = if function.is_in() { "in" } else { "removed" };
        let module = document
            .modules
            .get(function.module)
            .map_or("", |m| &m.path);
        let (title, module) = (function.title(), printable(module));
        let part = title.strip_prefix(&function.name).unwrap_or_default();
        let measured = document.measured_of(function).join(",");
        // The metrics in the first line are not repeated.
        let is_measured = matches!(function.role, Role::Measured | Role::Span);
        let measured = if !is_measured || measured == metrics.join(",") {
            String::new()
        } else {
            format!("{}  ", printable(&measured))
        };
        let throttled = function.throttled.map(ThrottledDoc::in_profile);
        let throttled = throttled.map(|t| format!(", throttled: {}", report::state(t)));
        let throttled = throttled.unwrap_or_default();
        lines.push(Line {
            name: printable(&function.name).into_owned(),
            part: part.to_owned(),
            rest: format!("{module}  {measured}{state}{throttled}"),
        });
    }
    let measured = lines.len();
    let refused = document.refused.iter().map(|refused| Line {
        name: printable(&refused.name).into_owned(),
        part: String::new(),
        rest: format!("refused: {}", printable(&refused.reason)),
    });
    lines.extend(refused);
    let pending = document.pending.iter();
    let pending = pending.map(|p| format!("    {}  waits for libraries\n", printable(&p.pattern)));
    let mut all = fitted(&lines, columns);
    all.splice(measured..measured, pending);
    format!("{}\n{}", head(session, seen), all.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_to_fit_a_terminal() {
        let key = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        let name = |method: &str| {
            format!("std::map<{key}, int, std::less<{key} > >::{method}(std::map<{key}, int>&)")
        };
        let line = |name: String, part: &str| Line {
            name,
            part: part.to_owned(),
            rest: "/srv/shop  in".to_owned(),
        };
        let lines = [
            line(name("insert"), ""),
            line(name("erase"), ":edges"),
            line("main".to_owned(), ""),
        ];
        let whole = fitted(&lines, None).concat();
        assert!(whole.contains(&name("insert")), "{whole}");
        assert!(
            whole.contains(&format!("{}:edges  /srv", name("erase"))),
            "{whole}"
        );
        for columns in [80, 140, 220] {
            let text = fitted(&lines, Some(columns)).concat();
            let widest = text.lines().map(|line| line.width()).max();
            assert!(widest <= Some(columns), "{text}");
            let has = |part: &str| text.lines().any(|line| line.contains(part));
            assert!(
                has("insert") && has("erase") && has(":edges  /srv/shop  in"),
                "{text}"
            );
            assert!(has("    main  /srv/shop  in"), "{text}");
        }
        // The least room of a name is more than this screen has.
        let narrow = fitted(&lines, Some(20)).concat();
        assert!(
            narrow.contains("insert") && narrow.contains("erase"),
            "{narrow}"
        );
    }
}
