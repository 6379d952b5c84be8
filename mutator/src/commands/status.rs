//! `status`: which sessions there are.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::{find, open_session, print};
use crate::clock;
use crate::error::Failure;
use crate::process::{Pid, Process};
use crate::session::Session;

/// Prints one session, or all.
pub(super) fn status(pid: Option<Pid>) -> Result<(), Failure> {
    if let Some(pid) = pid {
        if !crate::segment::all().iter().any(|(p, _)| *p == pid.0) {
            find("status", pid)?;
        }
        let session = open_session("status", pid)?;
        return print(&describe(&session));
    }
    let mut text = String::new();
    for (pid, start_time) in crate::segment::all() {
        let process = Process {
            pid: Pid(pid),
            start_time,
        };
        match Session::open(&process) {
            Ok(session) => text.push_str(&describe(&session)),
            Err(error) => super::warn(&error.failure("status", &process).to_string()),
        }
    }
    if text.is_empty() {
        text.push_str("no sessions\n");
    }
    print(&text)
}

fn describe(session: &Session) -> String {
    let (process, document) = (session.process(), session.document());
    let header = session.segment().header();
    let ticks = clock::tsc().saturating_sub(header.started_tsc.load(Relaxed));
    let seconds = ticks / header.clock_hz.load(Relaxed).max(1);
    let metrics: Vec<&str> = document.metrics.iter().map(|m| m.name.as_str()).collect();
    let state = if process.has_ended() {
        "  the process has ended"
    } else {
        ""
    };
    let mut text = format!(
        "{}  {}  {}  {seconds} s{state}\n",
        process.pid,
        document.exe,
        metrics.join(",")
    );
    for (_, function) in document.measured() {
        let state = if function.active { "in" } else { "removed" };
        let module = document
            .modules
            .get(function.module)
            .map_or("", |m| &m.path);
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {}  {module}  {state}", function.name);
    }
    for refused in &document.refused {
        let _ = writeln!(text, "    {}  refused: {}", refused.name, refused.reason);
    }
    text
}
