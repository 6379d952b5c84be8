//! A buffer for a program's output while the view uses the terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use crate::commands::remarks::warn;
use ipath_target::signals;

/// The bytes of output to keep. Older output is dropped.
const KEPT: u64 = 16 << 20;
/// The time between two checks of the output's length.
const A_LOOK: Duration = Duration::from_millis(200);

/// The output that would otherwise go to the terminal. The program writes to memory that it shares
/// with this process, so it continues even if this process dies.
#[derive(Default)]
pub(super) struct Spool {
    /// The memory. `None` if output is not redirected.
    file: Option<Arc<File>>,
    /// The length of the output that has been shown or dropped, in bytes.
    shown: u64,
    /// The thread that drops old output meanwhile.
    keeper: Option<(Sender<()>, JoinHandle<u64>)>,
    /// The terminal's state at the start. The program may leave the view's state behind.
    terminal: Option<libc::termios>,
}

impl Spool {
    /// A buffer that drops old output on a separate thread. Redirects nothing if memory is lacking.
    pub(super) fn new() -> Self {
        let created = memfd_create(c"ipath-output", MFdFlags::MFD_CLOEXEC);
        let file = created.ok().map(|fd: OwnedFd| Arc::new(File::from(fd)));
        let keeper = file.clone().map(|file| {
            let (end, ended) = channel();
            (end, signals::spawn(move || keep(&file, &ended)))
        });
        Self {
            file,
            shown: 0,
            keeper,
            terminal: tcgetattr(io::stdout()).ok().map(Into::into),
        }
    }

    /// Redirects the program's output to this buffer if it would go to a terminal. Terminal input
    /// is replaced by /dev/null, because the keys belong to the view.
    pub(super) fn redirect(&self, command: &mut Command) {
        let Some(file) = &self.file else { return };
        let copy = || file.try_clone().map(Stdio::from);
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        if io::stdout().is_terminal()
            && let Ok(to) = copy()
        {
            command.stdout(to);
        }
        if io::stderr().is_terminal()
            && let Ok(to) = copy()
        {
            command.stderr(to);
        }
    }

    /// Shows the output since the last call, once the view is closed.
    pub(super) fn follow(&mut self) {
        if let Some((end, keeper)) = self.keeper.take() {
            drop(end);
            self.shown = keeper.join().unwrap_or_default();
            if self.shown > 0 {
                warn(&format!(
                    "the first {} bytes of the program's output are left out",
                    self.shown
                ));
            }
        }
        let Some(file) = &self.file else { return };
        let mut out = io::stdout().lock();
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = file.read_at(&mut buffer, self.shown) {
            self.shown += len as u64;
            // The terminal may be gone.
            if out.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = out.flush();
    }

    /// Shows the remaining output after the program has ended, and restores the terminal.
    pub(super) fn finish(mut self) {
        self.follow();
        let is_in_front = nix::unistd::tcgetpgrp(io::stdout()) == Ok(nix::unistd::getpgrp());
        if let Some(terminal) = self.terminal.filter(|_| is_in_front) {
            let _ = tcsetattr(io::stdout(), SetArg::TCSADRAIN, &Termios::from(terminal));
        }
    }
}

/// Drops old output until told to end. Returns the number of dropped bytes.
fn keep(file: &File, ended: &Receiver<()>) -> u64 {
    let mut gone = 0;
    while ended.recv_timeout(A_LOOK) == Err(RecvTimeoutError::Timeout) {
        gone = let_go(file, gone);
    }
    let_go(file, gone)
}

/// Frees the memory of all but the last [`KEPT`] bytes, of which the first `gone` are already
/// freed. Returns the new number.
fn let_go(file: &File, gone: u64) -> u64 {
    let len = file.metadata().map_or(0, |meta| meta.len());
    let Some(to) = len.checked_sub(KEPT).filter(|&to| to > gone) else {
        return gone;
    };
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(file.as_fd(), flags, gone as i64, (to - gone) as i64) {
        Ok(()) => to,
        Err(_) => gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_flood_is_kept_and_no_more() {
        let spool = Spool::new();
        let file = spool.file.clone().expect("memory");
        let block = vec![b'x'; 1 << 20];
        for at in 0..64 {
            file.write_all_at(&block, at << 20).expect("memory");
        }
        file.write_all_at(b"the end", 64 << 20).expect("memory");
        let (end, keeper) = spool.keeper.expect("a thread");
        drop(end);
        let gone = keeper.join().expect("it ends");
        assert_eq!(gone, (64 << 20) + 7 - KEPT);
        let mut last = [0; 8];
        assert_eq!(file.read_at(&mut last, 64 << 20).ok(), Some(7));
        assert_eq!(&last[..7], b"the end");
        use std::os::unix::fs::MetadataExt;
        let held = file.metadata().expect("a file").blocks() * 512;
        assert!(held <= KEPT + (1 << 20), "{held}");
    }
}
