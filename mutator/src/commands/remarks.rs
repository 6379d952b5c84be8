//! Messages on standard error that are not errors.
//!
//! A blocked reader must not keep a session in its target or a program stopped. So text that cannot
//! be written at once waits until the command ends. While a view uses the terminal, the view shows
//! the messages, and they are written once it has closed.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use ipath_base::printable::printable;

/// The bytes that a ready pipe or terminal accepts without blocking (pipe(7), PIPE_BUF).
const AT_ONCE: usize = 4096;

/// The bytes that wait for a blocked reader, at most. Further messages are dropped: a command may
/// run for months.
const MAX_WAITING: usize = 1 << 20;

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    bytes: Vec::new(),
    is_held: false,
    latest: None,
});

/// Text that has not been written yet.
struct Waiting {
    /// The lines to write to standard error, the oldest first.
    bytes: Vec<u8>,
    /// True while a view uses the terminal.
    is_held: bool,
    /// The latest message that no view has fetched.
    latest: Option<String>,
}

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The terminal columns of the prefix of each line.
pub(super) const PREFIX: usize = "ipath: ".len();

/// Prints a message as a line of its own with a prefix, now or later (see above).
pub(super) fn warn(text: &str) {
    let mut waiting = waiting();
    let line = format!("ipath: {}\n", printable(text));
    if waiting.bytes.len() < MAX_WAITING {
        waiting.bytes.extend(line.into_bytes());
    }
    if waiting.is_held {
        waiting.latest = Some(text.to_owned())
    } else {
        write_some(&mut waiting.bytes, io::stderr())
    }
}

/// Prints the step in progress. Prints nothing while a view is open, since the line would appear
/// only afterwards.
pub(super) fn progress(text: &str) {
    if !waiting().is_held {
        warn(text);
    }
}

/// Holds messages back while this value lives, if standard error is a terminal.
#[must_use]
pub(super) struct Held(());

impl Held {
    /// Begins to hold messages back. Holds none back if standard error is no terminal.
    pub(super) fn begin() -> Self {
        waiting().is_held = io::stderr().is_terminal();
        Self(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut waiting = waiting();
        (waiting.is_held, waiting.latest) = (false, None);
        write_some(&mut waiting.bytes, io::stderr());
    }
}

/// The latest held message since the last call. `None` if there is none.
pub(super) fn latest() -> Option<String> {
    waiting().latest.take()
}

/// Writes all waiting text, and blocks if necessary.
pub(super) fn finish() {
    let waiting = std::mem::take(&mut waiting().bytes);
    // If standard error is closed, the error cannot be reported.
    let _ = io::stderr().lock().write_all(&waiting);
}

/// Writes as much as possible without blocking.
fn write_some(waiting: &mut Vec<u8>, mut to: impl Write + AsFd) {
    let takes = |to: &dyn AsFd| {
        let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
        let polled = poll(&mut fds, PollTimeout::ZERO);
        let ready = fds[0].revents().unwrap_or(PollFlags::empty());
        polled.is_ok() && ready.contains(PollFlags::POLLOUT)
    };
    while !waiting.is_empty() && takes(&to) {
        let piece = waiting.len().min(AT_ONCE);
        match to.write(&waiting[..piece]) {
            Ok(written) => drop(waiting.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn what_is_not_read_waits() {
        let (read, write) = nix::unistd::pipe().expect("a pipe");
        let write = File::from(write);
        let text: Vec<u8> = (0..1u32 << 20).map(|n| n as u8).collect();
        let mut waiting = text.clone();
        write_some(&mut waiting, &write);
        assert!(!waiting.is_empty() && waiting.len() < text.len());
        // More is written once the pipe has room.
        let mut first = vec![0; 1 << 15];
        let mut read = File::from(read);
        read.read_exact(&mut first).expect("there");
        let before = waiting.len();
        write_some(&mut waiting, &write);
        assert!(waiting.len() < before);
        assert_eq!(first, text[..first.len()]);
    }
}
