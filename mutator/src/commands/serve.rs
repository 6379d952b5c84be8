//! `serve-metrics`: a session for a monitoring system that comes by and reads.

use std::net::SocketAddr;
use std::time::Duration;

use tiny_http::{Header, Method, Request, Response, Server};

use super::looked::Looked;
use super::measure::patterns;
use super::output::print;
use super::remarks::warn;
use super::target::open_all;
use super::watch::hold;
use crate::error::Failure;
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
    let server = Server::http(listen).map_err(|e| {
        let failure = Failure::new("listen", listen, e);
        failure.hint("--listen names another address and port")
    })?;
    let address = server.server_addr();
    print(&Page::of(&format!("http://{address}{PATH}\n")))?;
    while !signals.ended() {
        served.retain(|one| !one.is_over());
        if served.is_empty() {
            warn(&format!("{OPERATION} {pid}: the session is over"));
            break;
        }
        let request = server.recv_timeout(A_LOOK);
        let request = request.map_err(|e| Failure::new("listen", listen, e))?;
        if let Some(request) = request {
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
    let headers = request.headers().iter();
    let accept = headers
        .filter(|header| header.field.equiv("Accept"))
        .map(|header| header.value.as_str())
        .collect::<Vec<_>>()
        .join(",");
    let is_known = request.url().split('?').next() == Some(PATH);
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    let (status, kind, text) = match (is_known, is_read) {
        (true, true) => {
            let format = Format::accepted(&accept);
            (200, format.media_type(), metrics(format))
        }
        (true, false) => (405, "text/plain", "GET it\n".to_owned()),
        (false, _) => (404, "text/plain", format!("it is at {PATH}\n")),
    };
    let mut response = Response::from_string(text).with_status_code(status);
    if let Ok(header) = Header::from_bytes("Content-Type", kind) {
        response = response.with_header(header);
    }
    // Who has gone away needs no answer.
    let _ = request.respond(response);
}
