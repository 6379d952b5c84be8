//! Taking over a file that a target has opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use ipath_target::process::{Process, Tid, pidfd};

/// Opens the memfd that a stopped target has just made as its descriptor `fd`. Another process with
/// the same descriptors may have replaced it by any file, which the target might not be allowed to
/// open. So this takes the descriptor itself, with its access rights, and checks that it leads to
/// an empty unnamed file in memory. Fails otherwise.
pub(super) fn own_memfd(process: &Process, tid: Tid, fd: i32) -> io::Result<File> {
    let file = File::from(taken(process, tid, fd)?);
    let refused = |what| Err(io::Error::other(what));
    let metadata = file.metadata()?;
    // SAFETY: takes no pointer.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: takes no pointer. Only files in memory have seals (fcntl(2)).
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if flags < 0 || flags & libc::O_ACCMODE != libc::O_RDWR || flags & libc::O_PATH != 0 {
        return refused("not open for writing");
    }
    if !metadata.is_file() || metadata.len() != 0 || metadata.nlink() != 0 || seals < 0 {
        return refused("not an empty memory file");
    }
    // A second open file, with its own position and lock.
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Copies a descriptor by pidfd_getfd(2), Linux 5.6. Uses the given thread because the first one
/// may have ended.
fn taken(process: &Process, tid: Tid, fd: i32) -> io::Result<OwnedFd> {
    /// include/uapi/linux/pidfd.h, since Linux 6.9.
    const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;
    let thread = match pidfd::open(tid.0, PIDFD_THREAD) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => pidfd::open(process.pid.0, 0),
        other => other,
    }?;
    // SAFETY: takes no pointer.
    pidfd::owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, thread.as_raw_fd(), fd, 0) })
}
