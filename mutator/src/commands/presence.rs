//! Whether a session still is in its process.

use std::fs;
use std::io::ErrorKind;

use crate::error::io_text;
use crate::process::Process;
use crate::session::Session;

/// What can be said of a session and its process. What cannot be seen is not taken for what is not
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The process runs, and the session is in it.
    Here,
    /// The process has ended.
    Ended,
    /// The process has become another program, see exec(2).
    OtherProgram,
    /// It cannot be seen, for this cause.
    Unknown(String),
}

/// Looks, and changes nothing.
pub(super) fn of(session: &Session) -> Presence {
    let process = session.process();
    match life(process) {
        Life::Ended => return Presence::Ended,
        Life::Unknown(cause) => return Presence::Unknown(cause),
        Life::Runs => {}
    }
    let (start, _) = session.document().segment;
    match process.maps() {
        // A process without any memory is about to end, or to be another program.
        Ok(maps) if maps.is_empty() => Presence::Unknown("it has no memory now".to_owned()),
        Ok(maps) => {
            let is_it =
                |m: &crate::process::Mapping| m.range.start.0 == start && m.name.contains("ipath");
            match maps.iter().any(is_it) {
                true => Presence::Here,
                false => Presence::OtherProgram,
            }
        }
        // It may have ended since.
        Err(error) => match life(process) {
            Life::Ended => Presence::Ended,
            _ => Presence::Unknown(error.to_string()),
        },
    }
}

enum Life {
    Runs,
    Ended,
    Unknown(String),
}

fn life(process: &Process) -> Life {
    if process.is_alive() {
        return Life::Runs;
    }
    // For want of a descriptor nothing is alive.
    match fs::read(format!("/proc/{}/stat", process.pid)) {
        Ok(_) if process.is_alive() => Life::Runs,
        Ok(_) => Life::Ended,
        Err(e) if e.kind() == ErrorKind::NotFound => Life::Ended,
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Life::Ended,
        Err(e) => Life::Unknown(io_text(&e)),
    }
}
