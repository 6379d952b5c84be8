//! Descriptors of processes: pidfd_open(2).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Presence, Process};

/// pidfd_open(2), Linux 5.3.
pub fn open(id: i32, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })
}

/// The descriptor that a system call has returned.
pub fn owned(result: i64) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just given it to us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Process {
    /// What is ready for reading once it has ended, where the kernel has that.
    pub fn ending(&self) -> Option<OwnedFd> {
        let ending = open(self.pid.0, 0).ok()?;
        // Another process may have had its id by then.
        (self.life() == Presence::Here).then_some(ending)
    }
}
