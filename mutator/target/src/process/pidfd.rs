//! Descriptors of processes: pidfd_open(2).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Presence, Process};

/// Opens a descriptor of the process `id`, or of the thread if `flags` say so: pidfd_open(2), Linux
/// 5.3.
///
/// # Errors
/// The error of the system call.
pub fn open(id: i32, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })
}

/// The descriptor that a system call has returned.
///
/// # Errors
/// The last error of the system if `result` is not a descriptor.
pub fn owned(result: i64) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just returned this descriptor, so it is owned here.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Process {
    /// A descriptor that becomes readable when the process ends. `None` if the kernel does not
    /// support it or the process has ended.
    pub fn ending(&self) -> Option<OwnedFd> {
        let ending = open(self.pid.0, 0).ok()?;
        // Another process may have reused the id before the open.
        (self.life() == Presence::Here).then_some(ending)
    }
}
