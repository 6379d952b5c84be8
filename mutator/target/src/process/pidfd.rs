//! Descriptors of processes: pidfd_open(2).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::{Presence, Process, read_text, stat_field};

/// What PIDFD_GET_INFO returns (include/uapi/linux/pidfd.h, `struct pidfd_info`, first version).
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// Asks for the exit code: PIDFD_INFO_EXIT, Linux 6.15.
const INFO_EXIT: u64 = 1 << 3;
/// PIDFD_GET_INFO: `_IOWR(0xff, 11, struct pidfd_info)`.
const GET_INFO: libc::c_ulong =
    3 << 30 | (size_of::<Info>() as libc::c_ulong) << 16 | 0xff << 8 | 11;

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

    /// The status with which the process ended. `ending` is its descriptor from
    /// [`ending`](Self::ending), opened while it ran. `None` if the process still runs or the
    /// kernel does not tell.
    pub fn exit_status(&self, ending: &OwnedFd) -> Option<ExitStatus> {
        let mut info = Info {
            mask: INFO_EXIT,
            ..Info::default()
        };
        // SAFETY: the kernel writes at most the size that is part of the request.
        let result = unsafe { libc::ioctl(ending.as_raw_fd(), GET_INFO, &raw mut info) };
        if result == 0 && info.mask & INFO_EXIT != 0 {
            return Some(ExitStatus::from_raw(info.exit_code));
        }
        // Its parent has not collected it.
        let stat = read_text(format!("/proc/{}/stat", self.pid)).ok()?;
        let is_same = stat_field(&stat, 22) == Some(self.start_time);
        let code = stat_field(&stat, 52).filter(|_| is_same && self.has_ended())?;
        // /proc shows 0 to those who may not trace the process.
        let code = i32::try_from(code).ok().filter(|&code| code != 0)?;
        Some(ExitStatus::from_raw(code))
    }
}
