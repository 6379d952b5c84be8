//! Watching a session until it ends: in the live view, or with summaries on standard output.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;

use super::live::Watched;
use super::next::{Measured, next};
use super::output::{print, print_data};
use super::panics::caught;
use super::remarks::{self, warn};
use crate::cli::{Output, Show};
use crate::failure::Failure;
use ipath_base::destination::Destination;
use ipath_base::error::io_text;
use ipath_base::hint::{CommandLine, Hint};
use ipath_base::printable::Page;
use ipath_profile::Profile;
use ipath_profile::report::{self, Screen, human};
use ipath_symbols::debuginfod;
use ipath_target::fault_injection::stumble;
use ipath_target::process::Pid;
use ipath_target::signals::{Asked, Signals};
use ipath_view::View;
use ipath_view::outlet::{Outlet, is_nobody};

/// Holds the signals that would end or stop this process, from before the first change to a target
/// until the session is removed.
pub(super) fn hold(operation: &str) -> Result<Signals, Failure> {
    Signals::hold().map_err(|e| Failure::new(operation, "signals", io_text(&e)))
}

/// A descriptor for the held signals that end this process.
pub(super) fn enders(operation: &str, signals: &Signals) -> Result<SignalFd, Failure> {
    let enders = signals.enders();
    enders.map_err(|e| Failure::new(operation, "signals", io_text(&e)))
}

/// The way in which measurements are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    View,
    Print(Output),
    /// Shows nothing. A missing reader does not matter.
    Silent,
}

/// The output of a command.
pub(super) struct Watch {
    mode: Mode,
    /// True if the final profile is printed too.
    is_told: bool,
    file: Option<Destination>,
    measured: Measured,
}

impl Watch {
    /// The output that the options ask for. To be called before any process is touched.
    ///
    /// # Errors
    /// The destination of `-o` cannot be written.
    pub(super) fn new(show: &Show) -> Result<Self, Failure> {
        let file = show.output.as_deref().map(destination).transpose()?;
        let has_output = matches!(file, Some(Destination::Descriptor(libc::STDOUT_FILENO)));
        Ok(Self::with(show, has_output, file, Measured::Attached))
    }

    /// Like [`new`](Self::new), if standard output belongs to a program. Nothing else is printed
    /// there if `-o` is given.
    pub(super) fn beside_program(show: &Show) -> Result<Self, Failure> {
        let file = show.output.as_deref().map(destination).transpose()?;
        Ok(Self::with(show, file.is_some(), file, Measured::Started))
    }

    /// Determines the mode. Nothing is printed if standard output `is_anothers`.
    fn with(show: &Show, is_anothers: bool, file: Option<Destination>, measured: Measured) -> Self {
        let is_view = !show.no_tui && !show.quiet && show.format == Output::Text && has_terminal();
        let is_told = !show.quiet && !is_anothers;
        let mode = match (is_view, is_told) {
            (true, _) => Mode::View,
            (false, true) => Mode::Print(show.format),
            (false, false) => Mode::Silent,
        };
        Self {
            mode,
            is_told,
            file,
            measured,
        }
    }

    /// Marks the program as that of `ipath demo`.
    pub(super) fn of_demo(self) -> Self {
        Self {
            measured: Measured::Demo,
            ..self
        }
    }

    /// True if the terminal belongs to the view.
    pub(super) fn is_view(&self) -> bool {
        self.mode == Mode::View
    }
}

/// True if there is a terminal that this process controls. Launchers of parallel programs give
/// their children a terminal to write to but not to control. A background job that changes its
/// terminal's mode is stopped by the kernel, together with its children (termios(3), SIGTTOU).
fn has_terminal() -> bool {
    // SAFETY: takes only a number.
    let in_front = unsafe { libc::tcgetpgrp(libc::STDOUT_FILENO) };
    in_front == nix::unistd::getpgrp().as_raw()
}

/// The destination of `-o`. Fails early if it cannot be written, since the profile would otherwise
/// be lost at the end.
pub(super) fn destination(path: &Path) -> Result<Destination, Failure> {
    let checked = Destination::of(path).and_then(|to| to.check().map(|()| to));
    checked.map_err(|e| Failure::new("write", path.display(), io_text(&e)))
}

/// The state in which watching ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// True if the reader of the output is gone.
    pub(super) is_deserted: bool,
}

/// Watches until the user, the time limit, the target or a signal ends it.
///
/// The session is removed first, even after failures of the terminal or of this program. Then the
/// terminal is restored, all signals except `kept` are released, and the final profile is written
/// and shown.
pub(super) fn watch(
    output: &Watch,
    show: &Show,
    mut live: impl Watched,
    signals: Signals,
    kept: &[Signal],
) -> Result<(), Failure> {
    let deadline = show.duration.map(|d| Instant::now() + d);
    signals.watch(&live.watched());
    let mut view = None;
    let held = output.is_view().then(remarks::Held::begin);
    let shown = caught("show", || match output.mode {
        // A signal arrived before it began.
        _ if signals.ended() => Ok(Shown { is_deserted: false }),
        Mode::View => {
            let failure = |e| Failure::new("show", "terminal", e);
            let view = view.insert(View::open(&signals).map_err(failure)?);
            view.watch(&mut live, show.interval, deadline)
                .map_err(failure)?;
            let is_deserted = view.is_deserted();
            Ok(Shown { is_deserted })
        }
        Mode::Print(format) => {
            let failure = |e| Failure::new("write", "standard output", io_text(&e));
            let mut out = Outlet::standard(&signals).map_err(failure)?;
            out.end_at(deadline);
            let printing = Some((&mut out, format));
            look_until_end(&mut live, show.interval, deadline, printing, &signals)
        }
        Mode::Silent => look_until_end(&mut live, show.interval, deadline, None, &signals),
    });
    // The end of a program that ipath has started is the end of the command.
    let is_attached = output.measured == Measured::Attached;
    let gone = is_attached.then(|| live.ended()).flatten();
    let (ended, mut profile) = live.finish();
    let stays_in = if output.is_view() {
        live.kept_in()
    } else {
        Vec::new()
    };
    drop(view);
    drop(held);
    if profile.is_ok() && debuginfod::is_pending() && !signals.ended() {
        warn("waiting for debug information (Ctrl-C continues without it)");
        debuginfod::wait(|| signals.ended());
        profile = live.profile_again();
    }
    let replaced = live.replaced();
    let elapsed = profile.as_ref().map(|profile| profile.session.elapsed_ns);
    let elapsed = elapsed.map(|ns| human::time(ns.into())).ok();
    let concluded = conclude(output, show, (ended, profile), shown, (signals, kept));
    if let (Ok(()), [first, ..]) = (&concluded, &stays_in[..]) {
        let pids: Vec<String> = stays_in.iter().map(Pid::to_string).collect();
        let pids = pids.join(", ");
        warn(&match stays_in.len() {
            1 => {
                let detach = CommandLine::ipath("detach").pid(*first);
                format!("the session stays in {pids}: `{detach}` takes it out")
            }
            n => format!(
                "the session stays in {n} processes ({pids}): `ipath detach PID` takes it out of one, or of all with the id of the process that started them"
            ),
        });
    }
    replaced.iter().for_each(|replaced| warn(replaced));
    if let (Some(gone), Some(elapsed)) = (gone, elapsed) {
        warn(&format!("{gone} after {elapsed}"));
    }
    concluded
}

/// Releases all signals except `kept`, and writes and shows the final profile, after the session
/// has been removed.
///
/// # Errors
/// The first failure: of removing the session, of the profile, of showing it, or of writing it.
pub(super) fn conclude(
    output: &Watch,
    show: &Show,
    (ended, profile): (Result<(), Failure>, Result<Profile, Failure>),
    shown: Result<Shown, Failure>,
    (signals, kept): (Signals, &[Signal]),
) -> Result<(), Failure> {
    let save = |profile: &Profile| match (&output.file, &show.output) {
        (Some(to), Some(path)) => profile
            .save_to(to)
            .map_err(|e| Failure::new("write", path.display(), io_text(&e))),
        _ => Ok(()),
    };
    let may_wait = output.file.as_ref().is_some_and(Destination::may_wait);
    let written = match &profile {
        // A file is written while signals are still held, so that none interrupts it.
        Ok(profile) if !may_wait => save(profile),
        _ => Ok(()),
    };
    signals.release_but(kept);
    let told = || {
        let (profile, shown) = (profile?, shown?);
        written?;
        if may_wait {
            save(&profile)?;
        }
        if shown.is_deserted || !output.is_told {
            return Ok(());
        }
        tell(output, show.output.as_deref(), &profile)
    };
    let told = told();
    // The first error is the one to report.
    ended.and(told)
}

/// Prints the final profile.
fn tell(output: &Watch, file: Option<&Path>, profile: &Profile) -> Result<(), Failure> {
    let mode = output.mode;
    let text = caught("report", || {
        stumble("report");
        Ok(match mode {
            Mode::View | Mode::Print(Output::Text) => {
                let next = next(profile, output.measured, file);
                final_text(profile, next.as_ref())
            }
            Mode::Print(_) => json_line(profile),
            Mode::Silent => String::new(),
        })
    })?;
    match mode {
        Mode::View | Mode::Print(Output::Text) => print(&Page::of(&text)),
        Mode::Print(_) | Mode::Silent => print_data(text.as_bytes()),
    }
}

/// Looks at the session each interval until something ends the watching. Prints a summary or a
/// profile each time if there is an output.
fn look_until_end(
    live: &mut impl Watched,
    interval: Duration,
    deadline: Option<Instant>,
    mut printing: Option<(&mut Outlet<'_>, Output)>,
    signals: &Signals,
) -> Result<Shown, Failure> {
    /// The time between two checks for ended processes. A followed process may start and end
    /// hundreds a second.
    const A_MOMENT: Duration = Duration::from_millis(50);
    let failure = |e| Failure::new("write", "standard output", io_text(&e));
    let mut last: Option<Profile> = None;
    let mut doubted: Option<String> = None;
    let mut is_warned = false;
    let mut next = Instant::now() + interval;
    // The time of the last look, and true if a process has ended since.
    let (mut looked, mut has_ended) = (Instant::now() - A_MOMENT, false);
    let mut are_over = false;
    loop {
        let is_waiting = live.begin_waiting();
        match signals.next() {
            Some(Asked::End) => return Ok(Shown { is_deserted: false }),
            Some(Asked::Suspend) => {
                if !signals.suspend() {
                    warn(
                        "cannot suspend: the followed processes would stop too; Ctrl-C ends ipath",
                    );
                }
            }
            Some(Asked::Child) => {
                has_ended = true;
                are_over = live.note_ends();
            }
            Some(Asked::Resize) => continue,
            None => {
                let until = match (are_over, has_ended) {
                    (true, _) => Instant::now(),
                    (_, true) => next.min(looked + A_MOMENT),
                    _ if is_waiting => next.min(Instant::now() + A_MOMENT),
                    _ => next,
                };
                let until = deadline.map_or(until, |d| d.min(until));
                let time = Some(until.saturating_duration_since(Instant::now()));
                match &printing {
                    Some((out, _)) => signals.wait([out.desertion()], time).map(drop),
                    None => signals.wait([], time).map(drop),
                }
                .map_err(failure)?;
            }
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return Ok(Shown { is_deserted: false });
        }
        if let Some((out, _)) = &printing
            && out.is_deserted().map_err(failure)?
        {
            return Ok(Shown { is_deserted: true });
        }
        let is_due = Instant::now() >= next;
        if !is_due && !are_over && (!has_ended || looked.elapsed() < A_MOMENT) {
            continue;
        }
        (looked, has_ended, are_over) = (Instant::now(), false, false);
        let sample = live.look()?;
        if sample.ended.is_some() {
            return Ok(Shown { is_deserted: false });
        }
        if sample.doubt != doubted {
            if let Some(doubt) = &sample.doubt {
                warn(doubt);
            }
            doubted = sample.doubt;
        }
        if !is_due {
            continue;
        }
        next = Instant::now() + interval;
        // Summaries contain this line themselves.
        let is_summarized = matches!(printing, Some((_, Output::Text)));
        if !is_summarized
            && !is_warned
            && let Some(heavy) = sample.profile.heavy_line()
        {
            warn(&heavy);
            is_warned = true;
        }
        let Some((out, format)) = &mut printing else {
            continue;
        };
        stumble("summary");
        let text = match format {
            Output::Text => {
                let text = summary(sample.profile, last.as_ref());
                last = Some(sample.profile.clone());
                Page::of(&text).as_str().to_owned()
            }
            Output::Jsonl => json_line(sample.profile),
            Output::Json => String::new(),
        };
        match out.write_all(text.as_bytes()) {
            Ok(()) => {}
            Err(error) if is_nobody(&error) => return Ok(Shown { is_deserted: true }),
            Err(error) => return Err(failure(error)),
        }
    }
}

fn json_line(profile: &Profile) -> String {
    serde_json::to_string(profile)
        .map(|text| text + "\n")
        .unwrap_or_default()
}

fn summary(profile: &Profile, last: Option<&Profile>) -> String {
    let mut text = Vec::new();
    let width = screen().map(|screen| screen.width);
    // Writing to memory does not fail.
    let _ = report::summary(profile, last, width, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The final text: on a terminal a summary of one screen and the command `next`, otherwise the
/// report or the paths that a search has found.
fn final_text(profile: &Profile, next: Option<&Hint>) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = match (screen(), &profile.search) {
        (Some(screen), _) => report::answer(profile, screen, next, &mut text),
        (None, Some(_)) => report::found(profile, &mut text),
        (None, None) => report::text(profile, &report::Options::default(), &mut text),
    };
    String::from_utf8_lossy(&text).into_owned()
}

/// The size of the terminal at standard output. `None` if standard output is not a terminal.
pub(super) fn screen() -> Option<Screen> {
    io::stdout().is_terminal().then(|| {
        let (width, height) = ipath_view::size();
        Screen {
            width: width.into(),
            height: height.into(),
        }
    })
}
