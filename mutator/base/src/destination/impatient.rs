//! Writing to descriptors that may block, for callers that cannot wait.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The total time to wait for readers.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of bytes that a pipe accepts atomically if it accepts any (pipe(7), PIPE_BUF).
const AT_ONCE: usize = 4096;

/// A file whose writes wait for its reader, together for at most [`PATIENCE`].
pub(super) struct Impatient {
    file: File,
    /// The time that later writes may still wait.
    left: Duration,
}

impl Impatient {
    /// `file`, which should be non-blocking.
    pub(super) fn of(file: File) -> Self {
        Self {
            file,
            left: PATIENCE,
        }
    }

    /// Waits until the file may accept bytes, or until a signal. It is an error if `left` ends
    /// before.
    fn await_room(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let mut wanted = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
        let time = Timespec::try_from(self.left).unwrap_or_default();
        let ready = poll(&mut wanted, Some(&time));
        self.left = self.left.saturating_sub(begun.elapsed());
        match ready {
            Ok(0) => Err(io::Error::other("its reader does not read any more")),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Write for Impatient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// The time until the next attempt if a terminal has some room, but too little.
        const A_MOMENT: Duration = Duration::from_millis(5);
        loop {
            self.await_room()?;
            match self.file.write(&bytes[..bytes.len().min(AT_ONCE)]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(A_MOMENT);
                    self.left = self.left.saturating_sub(A_MOMENT);
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file of an inherited descriptor. A pipe or a device is reopened as non-blocking if possible:
/// making the shared descriptor non-blocking would affect other processes.
pub(super) fn of_descriptor(descriptor: RawFd) -> io::Result<File> {
    let file = duplicate(descriptor)?;
    let kind = file.metadata()?.file_type();
    let may_block = kind.is_fifo() || kind.is_char_device();
    let anew = may_block.then(|| {
        File::options()
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(format!("/proc/self/fd/{descriptor}"))
    });
    // If it cannot be reopened, wait for it before each piece.
    Ok(anew.and_then(Result::ok).unwrap_or(file))
}

/// A file that owns a duplicate of `descriptor`.
pub(super) fn duplicate(descriptor: RawFd) -> io::Result<File> {
    // SAFETY: it was a descriptor just now, and this process does not close inherited descriptors.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
    Ok(File::from(own))
}
