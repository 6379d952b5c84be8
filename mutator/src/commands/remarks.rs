//! Lines on standard error that are no errors. Nobody who does not read them keeps a session in, or a program
//! stopped: what cannot be written at once waits for the command's end. While a view has the terminal they are for the view to show, and are
//! written when it has gone.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use ipath_base::printable::printable;

/// What a pipe or a terminal takes at once, if it takes anything (pipe(7), PIPE_BUF).
const AT_ONCE: usize = 4096;

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    bytes: Vec::new(),
    is_held: false,
    latest: None,
});

/// What has not been written yet.
struct Waiting {
    bytes: Vec<u8>,
    /// True while a view has the terminal.
    is_held: bool,
    /// What has been said last, where nobody has asked for it yet.
    latest: Option<String>,
}

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The columns before the text of a line.
pub(super) const PREFIX: usize = "ipath: ".len();

/// Says something.
pub(super) fn warn(text: &str) {
    let mut waiting = waiting();
    let line = format!("ipath: {}\n", printable(text));
    waiting.bytes.extend(line.into_bytes());
    if waiting.is_held {
        waiting.latest = Some(text.to_owned())
    } else {
        write_some(&mut waiting.bytes, io::stderr())
    }
}

/// Prints the step in progress. Prints nothing while a view is open: the line would appear only after it.
pub(super) fn progress(text: &str) {
    if !waiting().is_held {
        warn(text);
    }
}

/// Nothing is written while this lives, where it would be to a terminal.
#[must_use]
pub(super) struct Held(());

impl Held {
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

/// What has been said last, since the last time, of what is held.
pub(super) fn latest() -> Option<String> {
    waiting().latest.take()
}

/// Writes what is waiting, however long that takes.
pub(super) fn finish() {
    let waiting = std::mem::take(&mut waiting().bytes);
    // Nobody is left to tell where standard error is closed.
    let _ = io::stderr().lock().write_all(&waiting);
}

/// Writes as much as is taken at once.
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
        // More is taken once there is room.
        let mut first = vec![0; 1 << 15];
        let mut read = File::from(read);
        read.read_exact(&mut first).expect("there");
        let before = waiting.len();
        write_some(&mut waiting, &write);
        assert!(waiting.len() < before);
        assert_eq!(first, text[..first.len()]);
    }
}
