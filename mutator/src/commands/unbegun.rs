//! Ending `run` before its program begins.
//!
//! Signals are held from before the program is started, and the analysis of its files can take
//! seconds. The program is unmodified until a session is created, so a signal that ends the command
//! needs no teardown.

use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{self, pipe};

use super::remarks::warn;
use ipath_base::starved;
use ipath_target::process::Pid;
use ipath_target::signals::try_spawn;

/// A program that has been started and has not begun to run. Until [`Unbegun::end_watch`], or until
/// this is dropped, a signal that ends the command also kills the program.
pub(super) struct Unbegun {
    watched: Arc<Watched>,
    /// The watching thread, and a pipe whose closing ends it. `None` if the thread could not be
    /// created: `end_watch` then checks for the signal.
    thread: Option<(OwnedFd, JoinHandle<()>)>,
}

struct Watched {
    operation: &'static str,
    subject: String,
    child: Pid,
    enders: SignalFd,
    /// True once a session may be in the program.
    is_over: Mutex<bool>,
}

impl Unbegun {
    /// Watches for the signals of `enders` from now on. The caller holds them.
    pub(super) fn watch(
        operation: &'static str,
        subject: &str,
        child: Pid,
        enders: SignalFd,
    ) -> Self {
        let watched = Arc::new(Watched {
            operation,
            subject: subject.to_owned(),
            child,
            enders,
            is_over: Mutex::new(false),
        });
        let of_thread = Arc::clone(&watched);
        let thread = pipe().ok().and_then(|(closed, open)| {
            let thread = try_spawn(move || of_thread.wait(&closed)).ok()?;
            Some((open, thread))
        });
        Self { watched, thread }
    }

    /// Stops watching for signals. If one has arrived, kills the program and ends the command.
    pub(super) fn end_watch(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.watched.look(true);
        if let Some((open, thread)) = self.thread.take() {
            drop(open);
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Watched {
    /// Waits for a signal, or until the other end of `closed` is closed.
    fn wait(&self, closed: &OwnedFd) {
        loop {
            let [signal, end] = [self.enders.as_fd(), closed.as_fd()];
            let mut ready = [signal, end].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
            if self.look(false) {
                return;
            }
        }
    }

    /// Ends the command if a signal has arrived in time. Otherwise returns true if the watch is
    /// over, as it is after this call if `is_last`.
    fn look(&self, is_last: bool) -> bool {
        // Both threads check. The one that ends the command keeps the lock, and the other one
        // waits.
        let mut is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_over && let Ok(Some(info)) = self.enders.read_signal() {
            self.end(info.ssi_signo as i32);
        }
        *is_over |= is_last;
        *is_over
    }

    /// Kills the program, and ends the command with the status for this signal: 128 + N.
    fn end(&self, number: i32) -> ! {
        let child = unistd::Pid::from_raw(self.child.0);
        let _ = kill(child, Signal::SIGKILL);
        // If another thread has collected it, there is no child to wait for.
        while let Ok(WaitStatus::Stopped(..)) | Err(Errno::EINTR) =
            waitpid(child, Some(WaitPidFlag::__WALL))
        {}
        if starved::has_said() {
            exit(1);
        }
        let name = Signal::try_from(number).map_or("a signal", Signal::as_str);
        let (operation, subject) = (self.operation, &self.subject);
        warn(&format!(
            "{operation} {subject}: {name} arrived before the program began, and the program was \
            killed"
        ));
        exit(128 + number)
    }
}
