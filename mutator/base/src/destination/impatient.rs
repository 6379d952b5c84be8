//! Writing to what may take nothing, by those who cannot wait for it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How long readers are waited for, all in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a pipe takes at once, if it takes anything (pipe(7), PIPE_BUF).
const AT_ONCE: usize = 4096;

/// A file that is waited for as long as that, and no longer.
pub(super) struct Impatient {
    file: File,
    left: Duration,
}

impl Impatient {
    pub(super) fn of(file: File) -> Self {
        Self {
            file,
            left: PATIENCE,
        }
    }

    fn await_room(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let mut wanted = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
        let time = Timespec::try_from(self.left).unwrap_or_default();
        let ready = poll(&mut wanted, Some(&time));
        self.left = self.left.saturating_sub(begun.elapsed());
        match ready {
            Ok(0) => Err(io::Error::other("its reader does not read on")),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Write for Impatient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// Until a terminal that has some room, but too little, is asked again.
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

/// A descriptor that this process was started with. A pipe or a device is opened anew, so that nobody else's writing to it
/// stops waiting with this one.
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
    // One that may not be opened anew is waited for before each piece.
    Ok(anew.and_then(Result::ok).unwrap_or(file))
}

pub(super) fn duplicate(descriptor: RawFd) -> io::Result<File> {
    // SAFETY: it was a descriptor just now; nothing in this process closes those it was started with.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
    Ok(File::from(own))
}
