//! Output while a session is active. Neither a reader that does not read nor a lost terminal can
//! keep the session in the target.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use ipath_target::signals::Signals;

/// The time that a reader gets after this process was asked to end.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time to wait if a terminal has room, but too little.
const A_MOMENT: Duration = Duration::from_millis(5);
/// The number of bytes that a pipe accepts atomically if it accepts any (pipe(7), PIPE_BUF).
const AT_ONCE: usize = 4096;

/// A descriptor for output that does not block forever. After the first error it is shut: it
/// discards everything.
#[derive(Clone, Debug)]
pub struct Outlet<'s> {
    file: Rc<File>,
    signals: &'s Signals,
    is_shut: Rc<Cell<bool>>,
    /// The time at which pending output is given up.
    end: Rc<Cell<Option<Instant>>>,
}

impl<'s> Outlet<'s> {
    /// Standard output.
    ///
    /// # Errors
    /// It is closed.
    pub fn standard(signals: &'s Signals) -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        let may_block = kind.is_fifo() || kind.is_char_device();
        let own = may_block.then(|| open("/proc/self/fd/1", false));
        // If it cannot be reopened, wait for it before each piece.
        let file = own.and_then(Result::ok).unwrap_or(file);
        Ok(Self::new(file, signals))
    }

    /// Opens the controlling terminal for writing and reading.
    ///
    /// # Errors
    /// This process has no controlling terminal.
    pub fn terminal(signals: &'s Signals) -> io::Result<Self> {
        Ok(Self::new(open("/dev/tty", true)?, signals))
    }

    /// A descriptor of any kind.
    pub fn new(file: File, signals: &'s Signals) -> Self {
        Self {
            file: Rc::new(file),
            signals,
            is_shut: Rc::default(),
            end: Rc::default(),
        }
    }

    /// From `deadline` on, waits for readers only for a moment. Without a deadline, until a signal
    /// asks this process to end.
    pub fn end_at(&self, deadline: Option<Instant>) {
        self.end.set(deadline.map(|d| d + PATIENCE));
    }

    /// The descriptor to which the outlet writes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Discards all further output.
    pub fn shut(&self) {
        self.is_shut.set(true);
    }

    /// True if the outlet discards all output.
    pub fn is_shut(&self) -> bool {
        self.is_shut.get()
    }

    /// True if the last reader or the terminal is gone.
    ///
    /// # Errors
    /// Returns the errors of ppoll(2).
    pub fn is_deserted(&self) -> io::Result<bool> {
        let wanted = (self.file.as_fd(), PollFlags::empty());
        Ok(is_lost(
            self.signals.wait([wanted], Some(Duration::ZERO))?[0],
        ))
    }

    /// The event to poll for: the last reader or the terminal is gone.
    pub fn desertion(&self) -> (BorrowedFd<'_>, PollFlags) {
        (self.file.as_fd(), PollFlags::empty())
    }

    /// Waits for room, and writes at most [`AT_ONCE`] bytes. Returns their number. An error if the
    /// reader or the terminal is gone, or the time is up.
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut deadline = self.end.get();
            if self.signals.ended() {
                // The time starts when this is first noticed. The pieces do not have a time each.
                let soon = Instant::now() + PATIENCE;
                deadline = Some(deadline.map_or(soon, |d| d.min(soon)));
                self.end.set(deadline);
            }
            let time = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let wanted = (self.file.as_fd(), PollFlags::POLLOUT);
            let [ready] = self.signals.wait([wanted], time)?;
            if is_lost(ready) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if ready.contains(PollFlags::POLLOUT) {
                match (&*self.file).write(&bytes[..bytes.len().min(AT_ONCE)]) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        self.signals.wait([], Some(A_MOMENT))?;
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // The terminal is gone.
                    Err(e) if e.raw_os_error() == Some(libc::EIO) && self.is_device() => {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    written => return written,
                }
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn is_device(&self) -> bool {
        let kind = self.file.metadata().map(|m| m.file_type());
        kind.is_ok_and(|kind| kind.is_char_device())
    }
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_shut.get() || bytes.is_empty() {
            return Ok(bytes.len());
        }
        self.write_some(bytes).inspect_err(|_| self.shut())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// True for an error that means that the reader is gone or does not read in time.
pub fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut)
}

fn is_lost(flags: PollFlags) -> bool {
    flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL)
}

/// Reopens a terminal or pipe. Making the shared descriptor non-blocking would affect other
/// processes.
fn open(path: &str, for_reading: bool) -> io::Result<File> {
    File::options()
        .read(for_reading)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn to_this_thread(signal: i32) {
        // SAFETY: sends a signal that this thread blocks to this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
    }

    #[test]
    fn everything_is_written_in_order() {
        let signals = Signals::hold().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let text: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            File::from(read).read_to_end(&mut all).unwrap();
            all
        });
        let mut outlet = Outlet::new(File::from(write), &signals);
        outlet.write_all(&text).unwrap();
        drop(outlet);
        assert!(reader.join().unwrap() == text);
    }

    #[test]
    fn a_reader_that_has_gone_is_seen_and_shuts_it() {
        let signals = Signals::hold().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let mut outlet = Outlet::new(File::from(write), &signals);
        assert!(!outlet.is_deserted().unwrap());
        drop(read);
        assert!(outlet.is_deserted().unwrap());
        let error = outlet.write_all(b"x").unwrap_err();
        assert!(is_nobody(&error), "{error}");
        outlet.write_all(b"nothing happens any more").unwrap();
    }

    #[test]
    fn a_reader_that_does_not_read_is_left_once_the_process_is_to_end() {
        let signals = Signals::hold().unwrap();
        let (_read, write) = nix::unistd::pipe().unwrap();
        let mut outlet = Outlet::new(File::from(write), &signals);
        to_this_thread(libc::SIGTERM);
        let error = outlet.write_all(&[0; 1 << 20]).unwrap_err();
        assert!(is_nobody(&error), "{error}");
    }

    #[test]
    fn a_reader_that_does_not_read_is_left_at_the_deadline() {
        let signals = Signals::hold().unwrap();
        let (_read, write) = nix::unistd::pipe().unwrap();
        let mut outlet = Outlet::new(File::from(write), &signals);
        outlet.end_at(Some(Instant::now()));
        let error = outlet.write_all(&[0; 1 << 20]).unwrap_err();
        assert!(is_nobody(&error), "{error}");
    }

    #[test]
    fn a_terminal_that_is_gone_is_seen() {
        let signals = Signals::hold().unwrap();
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut outlet = Outlet::new(File::from(pty.slave), &signals);
        outlet.write_all(b"there").unwrap();
        drop(pty.master);
        let error = outlet.write_all(b"gone").unwrap_err();
        assert!(is_nobody(&error), "{error}");
    }
}
