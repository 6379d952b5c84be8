//! Watching a session to its end: in the live view, or as summaries on standard output.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

use super::print;
use super::source::Live;
use crate::cli::{Output, Show};
use crate::error::Failure;
use crate::profile::Profile;
use crate::{report, view};

/// Signals that end the watching, held back so that they are taken one by one.
pub(super) struct Signals {
    held: SigSet,
    before: SigSet,
}

impl Signals {
    /// Holds them from now on.
    pub(super) fn hold() -> Self {
        let signals: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGCHLD,
        ]
        .into_iter()
        .collect();
        // Fails for unknown signals only.
        let before = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
        let _ = signals.thread_block();
        Self {
            held: signals,
            before,
        }
    }

    /// The signal mask from before, for programs that are started.
    pub(super) fn before(&self) -> SigSet {
        self.before
    }

    /// Waits until one comes, or the time is over.
    pub(super) fn wait(&self, time: Duration) -> Option<Signal> {
        let limit = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        let set = std::ptr::from_ref(self.held.as_ref());
        // SAFETY: both point to values that live; no information on the signal is asked for.
        let signal = unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &raw const limit) };
        Signal::try_from(signal).ok()
    }
}

/// How the watching is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    View,
    Print(Output),
}

/// Where the results go.
pub(super) struct Watch {
    mode: Mode,
}

impl Watch {
    /// Checks the options before anything is touched.
    pub(super) fn new(show: &Show) -> Result<Self, Failure> {
        if let Some(path) = &show.output {
            check_output(path)?;
        }
        let is_view = !show.no_tui && show.format == Output::Text && has_terminal();
        Ok(Self {
            mode: if is_view {
                Mode::View
            } else {
                Mode::Print(show.format)
            },
        })
    }

    /// Whether the terminal belongs to the view.
    pub(super) fn is_view(&self) -> bool {
        self.mode == Mode::View
    }
}

/// Whether there is a terminal to draw on and to read keys from. Launchers of parallel programs give their
/// children one to write to that is not theirs to control, and the kernel stops a job in the background that
/// changes how its terminal works, with all that it has started (termios(3), SIGTTOU).
fn has_terminal() -> bool {
    // SAFETY: asks for a number by one.
    let in_front = unsafe { libc::tcgetpgrp(libc::STDOUT_FILENO) };
    in_front == nix::unistd::getpgrp().as_raw()
}

/// Refuses an output that could not be written at the end, when the profile would be lost.
pub(super) fn check_output(path: &Path) -> Result<(), Failure> {
    let refuse = |cause: String| Err(Failure::new("write", path.display(), cause));
    if path.is_dir() {
        return refuse("is a directory".to_owned());
    }
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK) {
        Ok(()) => Ok(()),
        Err(errno) => refuse(errno.desc().to_lowercase()),
    }
}

/// Watches until the user, the time or the target ends it. The final profile is written and shown.
pub(super) fn watch(
    output: &Watch,
    show: &Show,
    mut live: Live,
    signals: &Signals,
) -> Result<Profile, Failure> {
    let deadline = show.duration.map(|d| Instant::now() + d);
    let process = live.session().process().clone();
    let shown = match output.mode {
        Mode::View => view::run(&mut live, show.interval, deadline)
            .map_err(|e| Failure::new("show", "terminal", e)),
        Mode::Print(format) => print_until_end(&mut live, show.interval, deadline, format, signals),
    };
    // Everything comes out of the target whatever became of the view.
    let profile = live.finish().map_err(|e| e.failure("detach", &process));
    let profile = profile?;
    if let Some(path) = &show.output {
        profile.save(path).map_err(|e| Failure::of("write", e))?;
    }
    shown?;
    match output.mode {
        Mode::View | Mode::Print(Output::Text) => print(&final_text(&profile))?,
        Mode::Print(_) => print(&json_line(&profile))?,
    }
    Ok(profile)
}

fn print_until_end(
    live: &mut Live,
    interval: Duration,
    deadline: Option<Instant>,
    format: Output,
    signals: &Signals,
) -> Result<(), Failure> {
    let process = live.session().process().clone();
    let mut last: Option<Profile> = None;
    let mut next = Instant::now() + interval;
    loop {
        let until = deadline.map_or(next, |d| d.min(next));
        let signal = signals.wait(until.saturating_duration_since(Instant::now()));
        if signal.is_some_and(|s| s != Signal::SIGCHLD) {
            return Ok(());
        }
        if signal.is_none() && deadline.is_some_and(|d| Instant::now() >= d) {
            return Ok(());
        }
        let is_due = Instant::now() >= next;
        if !is_due && !live.session().process().has_ended() {
            continue;
        }
        let sample = live.look().map_err(|e| e.failure("watch", &process))?;
        if sample.ended.is_some() {
            return Ok(());
        }
        next += interval;
        match format {
            Output::Text => print(&summary(&sample.profile, last.as_ref()))?,
            Output::Jsonl => print(&json_line(&sample.profile))?,
            Output::Json => {}
        }
        last = Some(sample.profile);
    }
}

fn json_line(profile: &Profile) -> String {
    serde_json::to_string(profile)
        .map(|text| text + "\n")
        .unwrap_or_default()
}

fn summary(profile: &Profile, last: Option<&Profile>) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = report::summary(profile, last, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The costliest paths of each function: all of them are in a profile.
fn final_text(profile: &Profile) -> String {
    const PATHS: usize = 100;
    let options = report::Options {
        paths: Some(PATHS),
        ..report::Options::default()
    };
    let mut text = Vec::new();
    let _ = report::text(profile, &options, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
