//! `top`: watches existing sessions.

use super::live::{AtEnd, Live};
use super::processes::Job;
use super::target::open_all;
use super::watch::{Watch, hold, watch};
use crate::cli::Show;
use crate::failure::Failure;
use ipath_session::session::Session;
use ipath_target::process::Pid;

const OPERATION: &str = "top";

/// Watches an existing session, or those of a job.
pub(super) fn top(pid: Pid, show: &Show, most: Option<f64>) -> Result<(), Failure> {
    let sessions = open_all(OPERATION, pid, Session::open)?;
    watch_all(OPERATION, sessions, show, most)
}

/// Watches these sessions of one process or job, at least one. Keeps the overhead in each process
/// below `most`, a share of its CPU time.
pub(super) fn watch_all(
    operation: &str,
    mut sessions: Vec<Session>,
    show: &Show,
    most: Option<f64>,
) -> Result<(), Failure> {
    let output = Watch::new(show)?;
    let signals = hold(operation)?;
    // There is at least one.
    match sessions.pop() {
        Some(one) if sessions.is_empty() => {
            let live = Live::new(one, AtEnd::Nothing).limited(most);
            watch(&output, show, live, signals, &[])
        }
        last => {
            sessions.extend(last);
            watch(&output, show, Job::of(sessions, most), signals, &[])
        }
    }
}
