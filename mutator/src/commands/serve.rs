//! `serve-metrics`: serves a session's metrics to a monitoring system.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::looked::Looked;
use super::measure::patterns;
use super::output::print;
use super::remarks::warn;
use super::target::open_all;
use super::watch::hold;
use crate::failure::Failure;
use crate::http::{Answer, Request, Server};
use ipath_base::error::io_text;
use ipath_base::printable::Page;
use ipath_profile::Profile;
use ipath_profile::openmetrics::{self, Format};
use ipath_profile::report::Filter;
use ipath_session::session::Session;
use ipath_target::process::Pid;
use patcher::select::Pattern;

const OPERATION: &str = "serve-metrics";
/// The path that scrapers request by convention.
const PATH: &str = "/metrics";
/// The time between two checks for sessions that are over.
const A_LOOK: Duration = Duration::from_millis(200);

/// Serves the sessions of a process or job until they are over or a signal arrives.
pub(super) fn serve(pid: Pid, listen: SocketAddr, under: &[String]) -> Result<(), Failure> {
    let under = patterns(OPERATION, under)?;
    let mut served: Vec<Looked> = open_all(OPERATION, pid, Session::open)?
        .into_iter()
        .map(Looked::of)
        .collect();
    let signals = hold(OPERATION)?;
    let server = Server::listen(listen).map_err(|e| {
        let failure = Failure::new("listen", listen, io_text(&e));
        failure.hint("--listen names another address and port")
    })?;
    // Done before the first request, which then need not wait for debug information.
    say_what_is_not_under(&profiles(&mut served), &under);
    let address = server.address();
    print(&Page::of(&format!("http://{address}{PATH}\n")))?;
    while !signals.ended() {
        served.retain(|one| !one.is_over());
        if served.is_empty() {
            warn(&format!("{OPERATION} {pid}: the session is over"));
            break;
        }
        answer(server.requests(A_LOOK), |formats| {
            let profiles = profiles(&mut served);
            let text = |&format: &Format| openmetrics::text(&profiles, &under, format).into();
            formats.iter().map(text).collect()
        });
    }
    signals.release();
    Ok(())
}

/// The current profiles of the sessions that can be read.
fn profiles(served: &mut [Looked]) -> Vec<Profile> {
    let now = served.iter_mut().map(|one| one.profile(OPERATION));
    now.flatten().collect()
}

/// Warns about functions that no path passes through. The name may be wrong, or the function not
/// called yet.
fn say_what_is_not_under(profiles: &[Profile], under: &[Pattern]) {
    let is_there = |pattern: &Pattern| {
        let filter = Filter::of_paths_through(pattern);
        profiles.iter().any(|profile| filter.of(profile).is_ok())
    };
    for pattern in under.iter().filter(|p| !is_there(p)) {
        let text = pattern.text();
        warn(&format!(
            "{OPERATION}: no path passes through `{text}` so far"
        ));
    }
}

/// Answers requests. All requests for the metrics share one reading of the sessions, which is
/// rendered once per format.
fn answer(requests: Vec<Request>, metrics: impl FnOnce(&[Format]) -> Vec<Arc<str>>) {
    let is_for_them = |request: &Request| request.path == PATH && request.is_read;
    let (for_them, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_for_them);
    for request in others {
        let answer = if request.path == PATH {
            Answer::line((405, "Method Not Allowed"), "GET it\n".to_owned())
        } else {
            Answer::line((404, "Not Found"), format!("it is at {PATH}\n"))
        };
        request.answer(answer);
    }
    let mut formats: Vec<Format> = Vec::new();
    for request in &for_them {
        let format = Format::accepted(&request.accept);
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    if formats.is_empty() {
        return;
    }
    let texts = metrics(&formats);
    for request in for_them {
        let wanted = Format::accepted(&request.accept);
        let written = formats.iter().zip(&texts).find(|(f, _)| **f == wanted);
        // A dropped request is closed. Each of the formats has its text.
        if let Some((format, text)) = written {
            request.answer(Answer {
                status: (200, "OK"),
                kind: format.media_type(),
                text: text.clone(),
            });
        }
    }
}
