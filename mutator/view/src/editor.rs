//! Runs the user's editor, which has the terminal until it ends. The view also ends for other
//! reasons meanwhile.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use super::inputs::Edited;
use super::suspension::stop_job;
use super::terminal::Tty;
use ipath_target::signals::{Asked, Signals};

/// The time between two checks that the source has not ended.
const A_LOOK: Duration = Duration::from_millis(500);
/// The time for an editor to end after a hangup.
const PATIENCE: Duration = Duration::from_millis(500);

/// A running editor, a child of this process and a member of its job.
pub(super) struct Editor(Pid);

/// The state of the child.
enum State {
    Runs,
    Stopped,
    Ended(ExitStatus),
}

impl Editor {
    /// Starts the editor at a line of a file. `mask` is the signal mask for programs.
    pub(super) fn start(file: &str, line: u32, mask: SigSet) -> io::Result<Self> {
        let editor = ["VISUAL", "EDITOR"].iter().find_map(std::env::var_os);
        let editor = editor.unwrap_or_else(|| "vi".into());
        // As in git, the variable may contain a command with options.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec $IPATH_EDITOR \"$@\"", "sh"]);
        command.arg(format!("+{line}")).arg(file);
        command.env("IPATH_EDITOR", editor);
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || Ok(mask.thread_set_mask()?)) };
        Ok(Self(Pid::from_raw(command.spawn()?.id() as i32)))
    }

    /// Waits until the editor ends, or until the view has to end: at the deadline, if the terminal
    /// is gone, on a signal, or if the source has ended (`is_over`).
    ///
    /// # Errors
    /// The editor has failed, or waiting for it fails.
    pub(super) fn accompany(
        &self,
        tty: &Tty<'_>,
        deadline: Option<Instant>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> io::Result<Edited> {
        let signals = tty.signals();
        let mut next_look = Instant::now() + A_LOOK;
        loop {
            let is_stopped = match self.state()? {
                State::Runs => false,
                State::Stopped => true,
                State::Ended(status) if status.success() => return Ok(Edited::Done),
                State::Ended(status) => {
                    return Err(io::Error::other(format!("the editor ended with {status}")));
                }
            };
            if is_stopped {
                // This process stops, too, so that the shell sees a stopped job, as with Ctrl-Z in
                // the view.
                stop_job();
            }
            let now = Instant::now();
            let mut is_due = now >= next_look;
            match signals.next() {
                Some(Asked::End) => return Ok(Edited::Left),
                asked if is_stopped || asked == Some(Asked::Suspend) => {
                    signals.suspend();
                    self.signal(Signal::SIGCONT);
                    continue;
                }
                Some(Asked::Child) => is_due = true,
                Some(_) => continue,
                None => {}
            }
            if deadline.is_some_and(|deadline| now >= deadline) || tty.outlet().is_deserted()? {
                return Ok(Edited::Left);
            }
            if is_due {
                if is_over() {
                    return Ok(Edited::Left);
                }
                next_look = Instant::now() + A_LOOK;
                continue;
            }
            let until = deadline.map_or(next_look, |deadline| deadline.min(next_look));
            let time = until.saturating_duration_since(now);
            signals.wait([tty.outlet().desertion()], Some(time))?;
        }
    }

    /// Sends a hangup, on which editors save unsaved text, because the terminal is no longer
    /// theirs. Returns true once the editor has ended, and false if it has not ended after a
    /// moment.
    pub(super) fn hang_up(&self, signals: &Signals) -> bool {
        self.signal(Signal::SIGHUP);
        self.signal(Signal::SIGCONT);
        let end = Instant::now() + PATIENCE;
        loop {
            if !matches!(self.state(), Ok(State::Runs | State::Stopped)) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || signals.wait([], Some(left)).is_err() {
                return false;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // It is a child of this process that has not been reaped.
        let _ = kill(self.0, signal);
    }

    /// The state of the editor. Each stop is reported once.
    fn state(&self) -> io::Result<State> {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::WUNTRACED;
        // SAFETY: writes to a value that lives.
        match unsafe { libc::waitpid(self.0.as_raw(), &raw mut status, flags) } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(State::Runs),
            _ => {
                let status = ExitStatus::from_raw(status);
                Ok(match status.stopped_signal() {
                    Some(_) => State::Stopped,
                    None => State::Ended(status),
                })
            }
        }
    }
}
