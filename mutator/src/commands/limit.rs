//! `--max-overhead` without a search: a thread that looks at the load of a session and measures
//! functions less while the overhead is above the limit.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::remarks::warn;
use crate::cli::Measure;
use crate::commands::failures::SessionFailure;
use ipath_base::hint::CommandLine;
use ipath_sampling::throttle::{Lowered, Pace, Throttle};
use ipath_session::collect::LoadReader;
use ipath_session::segment::SegmentError;
use ipath_session::session::{Session, SessionError};
use ipath_target::process::Pid;

/// The rest after a change that failed, for example because another command changes the session.
const REST: Duration = Duration::from_millis(200);

/// A limit of the overhead in a session. It ends when this is dropped, after a change that is under
/// way.
pub(super) struct Limit {
    /// Carries no messages: dropping it ends the thread.
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Limit {
    /// Keeps the overhead in the session of a process below `share` of its CPU time.
    pub(super) fn begin(session: &Session, share: f64) -> Self {
        let (until, is_over) = mpsc::channel::<()>();
        let process = session.process().clone();
        // Reading the document of thousands of functions takes some milliseconds.
        let session = session.again();
        let work = move || {
            let is_over = |pause| is_over.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
            match session.and_then(|session| keep(session, share, is_over)) {
                Err(error) if !error.is_end() && !is_gone(&error) => {
                    let failure = error.failure("--max-overhead", &process);
                    warn(&failure.in_one_line());
                }
                _ => {}
            }
        };
        // The thread inherits its creator's signal mask. Without a thread there is no limit.
        let thread = thread::Builder::new().name("limit".into()).spawn(work);
        if let Err(error) = &thread {
            warn(&format!("--max-overhead has no effect: {error}"));
        }
        Self {
            until: Some(until),
            thread: thread.ok(),
        }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported.
            let _ = thread.join();
        }
    }
}

/// Says that no command keeps the limit in a session that stays in its process.
pub(super) fn tell_unlimited(pid: Pid, measure: &Measure, keep: bool) {
    let Some(share) = measure.max_overhead.filter(|_| keep) else {
        return;
    };
    let top = CommandLine::ipath("top")
        .pid(pid)
        .share("--max-overhead", share);
    warn(&format!(
        "--max-overhead holds only while a command watches, and throttled functions stay so: \
        `{top}` continues"
    ));
}

/// True if the session has been taken out.
fn is_gone(error: &SessionError) -> bool {
    matches!(error, SessionError::Segment(SegmentError::Missing)) || error.is_gone()
}

/// Looks at the load and measures functions less, until `is_over` returns true. It is called with
/// the time to wait.
fn keep(
    mut session: Session,
    share: f64,
    is_over: impl Fn(Duration) -> bool,
) -> Result<(), SessionError> {
    let (mut throttle, mut pace) = (Throttle::new(share), Pace::default());
    let mut loads = LoadReader::default();
    // Functions that are out, and that nothing replaces yet.
    let mut unsettled = Vec::new();
    session.refresh()?;
    throttle.begin(loads.read(&session));
    while !is_over(pace.pause()) {
        session.refresh()?;
        let begun = Instant::now();
        let changes = throttle.next(loads.read(&session));
        pace.looked(begun.elapsed(), !changes.is_empty());
        if changes.is_empty() && (unsettled.is_empty() || !pace.is_quiet()) {
            continue;
        }
        let of = |lowered: Lowered| -> Vec<usize> {
            let some = changes.iter().filter(|(_, to)| *to == lowered);
            some.map(|(id, _)| *id).collect()
        };
        let done = if changes.is_empty() {
            session.settle(&std::mem::take(&mut unsettled))
        } else {
            unsettled.extend(of(Lowered::Out));
            let changed = session.throttle(&of(Lowered::Counted), &of(Lowered::Out));
            changed.map(drop)
        };
        match done {
            Ok(()) => {}
            Err(error) if error.is_end() || is_gone(&error) => return Err(error),
            // Another command may hold the lock, or a debugger the process.
            Err(_) if is_over(REST) => break,
            Err(_) => {}
        }
        session.refresh()?;
        throttle.begin(loads.read(&session));
    }
    if unsettled.is_empty() || session.process().has_ended() {
        return Ok(());
    }
    session.settle(&unsettled)
}
