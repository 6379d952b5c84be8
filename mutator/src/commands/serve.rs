//! `serve-metrics`: a session for a monitoring system that comes by and reads.

use std::net::SocketAddr;
use std::time::Duration;

use super::looked::Looked;
use super::measure::patterns;
use super::output::print;
use super::remarks::warn;
use super::target::open_all;
use super::watch::hold;
use crate::error::{Failure, io_text};
use crate::http::{Answer, Request, Server};
use crate::openmetrics::{self, Format};
use crate::printable::Page;
use crate::process::Pid;
use crate::profile::Profile;
use crate::session::Session;

const OPERATION: &str = "serve-metrics";
/// Where the metrics are, as scrapers expect it.
const PATH: &str = "/metrics";
/// Time between two looks at whether there is anything to serve any more.
const A_LOOK: Duration = Duration::from_millis(200);

/// Serves the sessions of a process or a job until they are over, or a signal comes.
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
    let address = server.address();
    print(&Page::of(&format!("http://{address}{PATH}\n")))?;
    while !signals.ended() {
        served.retain(|one| !one.is_over());
        if served.is_empty() {
            warn(&format!("{OPERATION} {pid}: the session is over"));
            break;
        }
        if let Some(request) = server.next(A_LOOK) {
            let profiles: Vec<Profile> = served
                .iter_mut()
                .filter_map(|one| one.profile(OPERATION))
                .collect();
            answer(request, |format| {
                openmetrics::text(&profiles, &under, format)
            });
        }
    }
    signals.release();
    Ok(())
}

/// Answers a request for the metrics, and says of any other that there is nothing.
fn answer(request: Request, metrics: impl FnOnce(Format) -> String) {
    let answer = match (request.path == PATH, request.is_read) {
        (true, true) => {
            let format = Format::accepted(&request.accept);
            Answer {
                status: (200, "OK"),
                kind: format.media_type(),
                text: metrics(format),
            }
        }
        (true, false) => Answer::line((405, "Method Not Allowed"), "GET it\n".to_owned()),
        (false, _) => Answer::line((404, "Not Found"), format!("it is at {PATH}\n")),
    };
    request.answer(answer);
}
