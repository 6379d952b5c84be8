//! `attach` and `top`.

use super::find;
use super::measure::{check, options, patterns, spots};
use super::outcome::tell_refused;
use super::remarks::warn;
use super::source::{AtEnd, Live};
use super::target::{find, open_session};
use super::watch::{Watch, hold, watch};
use crate::cli::{Measure, Show};
use crate::error::Failure;
use crate::guest::Runner;
use crate::process::Pid;
use crate::session::{Session, Where, select_in};

/// Instruments a running process, shows what happens, and takes everything out again.
pub(super) fn attach(pid: Pid, measure: &Measure, show: &Show, keep: bool) -> Result<(), Failure> {
    const OPERATION: &str = "attach";
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns.at)?;
    let options = options(OPERATION, measure)?;
    let watch_output = Watch::new(show)?;
    let process = find(OPERATION, pid)?;
    let failure = |e: crate::session::SessionError| e.failure(OPERATION, &process);
    process.check().map_err(|e| failure(e.into()))?;
    let patterns = match patterns.is_empty() && spots.is_empty() {
        false => patterns,
        true if watch_output.is_view() => {
            let chosen = find::choose(OPERATION, &process)?;
            if chosen.is_empty() {
                return Ok(());
            }
            chosen
        }
        true => {
            let cause = "no function is named, and there is no terminal to choose one in";
            return Err(Failure::new(OPERATION, pid, cause).hint(format!(
                "`ipath suggest {pid}` lists those worth naming with -f"
            )));
        }
    };
    let mut selected = select_in(&process, &patterns, options.wanted()).map_err(failure)?;
    selected.find_points(&spots);
    if measure.patterns.allow_trap {
        selected.selection.allow_traps();
    }
    selected.find_values(&options.items());
    check(
        OPERATION,
        &pid.to_string(),
        &measure.patterns,
        &selected.selection,
    )?;
    if let Some(runner) = Runner::of_process(&process) {
        warn(&format!("{OPERATION} {pid}: {}", runner.note()));
    }
    let signals = hold(OPERATION)?;
    let (session, changed) =
        Session::create(&process, &options, selected, Where::Running).map_err(failure)?;
    crate::segment::sweep();
    let at_end = match keep {
        true => AtEnd::Keep,
        false => AtEnd::TakeOut,
    };
    let live = Live::new(session, at_end);
    tell_refused(&changed);
    watch(&watch_output, show, live, signals, &[])
}

/// Watches a session that is there.
pub(super) fn top(pid: Pid, show: &Show) -> Result<(), Failure> {
    let watch_output = Watch::new(show)?;
    let session = open_session("top", pid)?;
    let signals = hold("top")?;
    let live = Live::new(session, AtEnd::Nothing);
    watch(&watch_output, show, live, signals, &[])
}
