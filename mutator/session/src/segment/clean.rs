//! Removes segments that processes have left behind.

use std::fs::{File, remove_file, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ipath_base::error::io_text;
use ipath_target::process::{Presence, Process};

/// Sets the signal that requests the release of a lease: include/uapi/asm-generic/fcntl.h.
const F_SETSIG: i32 = 10;

/// The result for one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// The segment was removed.
    Removed,
    /// The segment's process is running.
    Lives,
    /// The segment was kept, for this reason.
    Kept(String),
}

/// Removes the named segments of processes that have ended, and returns the result for each. Keeps
/// a segment that a process uses, and if this is not root, one of another user.
pub fn clean() -> Vec<(PathBuf, Cleaned)> {
    let clean = |(path, process): (PathBuf, Process)| {
        let cleaned = clean_one(&process, &path);
        (path, cleaned)
    };
    super::all_named().into_iter().map(clean).collect()
}

/// Like [`clean`], for an attach: removes only segments of this user that have not been read or
/// written for a day. By then their data is no longer of interest.
pub fn sweep() {
    const UNREAD: Duration = Duration::from_secs(24 * 3600);
    // SAFETY: takes no argument and cannot fail.
    let own = unsafe { libc::geteuid() };
    let now = SystemTime::now();
    let is_old = |path: &Path| {
        let Ok(metadata) = symlink_metadata(path) else {
            return false;
        };
        let touched = metadata
            .modified()
            .and_then(|m| Ok(m.max(metadata.accessed()?)));
        let age = touched.and_then(|t| now.duration_since(t).map_err(io::Error::other));
        metadata.uid() == own && age.is_ok_and(|age| age > UNREAD)
    };
    for (path, process) in super::all_named() {
        if is_old(&path) {
            // `status --clean` reports the ones that cannot be removed.
            let _ = clean_one(&process, &path);
        }
    }
}

/// Removes the segment at `path` if `process` has ended and no process uses the segment.
fn clean_one(process: &Process, path: &Path) -> Cleaned {
    match process.life() {
        Presence::Ended => {}
        Presence::Unknown(cause) => return Cleaned::Kept(cause),
        Presence::Here | Presence::OtherProgram => return Cleaned::Lives,
    }
    let removed = unused(path).and_then(|file| {
        // No two processes have the same pid and start time. The name therefore still leads to the
        // file that was inspected, or to one that another process put there, which can go too.
        let removed = remove_file(path);
        drop(file);
        removed
    });
    match removed {
        Ok(()) => Cleaned::Removed,
        Err(error) => Cleaned::Kept(io_text(&error)),
    }
}

/// True if some process is known to have this segment open or mapped. That includes processes in
/// other pid namespaces, which have other ids there. This process must not have it open.
pub fn is_in_use(path: &Path) -> bool {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    file.and_then(|file| is_written(&file)).unwrap_or(false)
}

/// Opens and locks the file. Fails if it is not this user's, or if a process has it open or mapped,
/// even one in another pid namespace.
fn unused(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // SAFETY: takes no argument and cannot fail.
    let own = unsafe { libc::geteuid() };
    if own != 0 && metadata.uid() != own {
        return Err(io::Error::other(format!(
            "it belongs to user {}",
            metadata.uid()
        )));
    }
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(io::Error::other("it is used by another ipath"));
    }
    if !is_written(&file)? {
        Ok(file)
    } else {
        Err(io::Error::other("it is mapped by a process"))
    }
}

/// True if a process has the file open for writing, or mapped so.
fn is_written(file: &File) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // The kernel grants a read lease only if no process has the file open for writing or mapped
    // shared and writable (fcntl(2), F_SETLEASE). A process that opens the file meanwhile waits
    // until the lease is released. The signal that requests this is one that does nothing.
    // SAFETY: takes no pointers.
    let leased = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) == 0
    };
    let cause = io::Error::last_os_error();
    // SAFETY: takes no pointers.
    unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    match leased {
        true => Ok(false),
        false if cause.kind() == ErrorKind::WouldBlock => Ok(true),
        false => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::Pid;
    use memmap2::MmapRaw;

    /// A process id above the maximum, which no process has.
    const NOBODY: Process = Process {
        pid: Pid(1 << 23),
        start_time: 1,
    };

    #[test]
    fn a_file_that_is_mapped_is_in_use_and_after_that_is_not() {
        let path = std::env::temp_dir().join(format!("ipath-clean-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = MmapRaw::map_raw(&file).unwrap();
        drop(file);
        let kept = Cleaned::Kept("it is mapped by a process".to_owned());
        assert_eq!(clean_one(&NOBODY, &path), kept);
        drop(map);
        assert_eq!(clean_one(&NOBODY, &path), Cleaned::Removed);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_runs_keeps_its_own() {
        let own = Process::find(Pid(std::process::id() as i32)).unwrap();
        assert_eq!(own.life(), Presence::Here);
        let earlier = Process {
            start_time: own.start_time + 1,
            ..own
        };
        assert_eq!(earlier.life(), Presence::Ended);
        assert_eq!(NOBODY.life(), Presence::Ended);
    }

    #[test]
    fn what_is_no_file_stays() {
        let path = std::env::temp_dir().join(format!("ipath-clean-fifo-{}", std::process::id()));
        let _ = remove_file(&path);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let kept = Cleaned::Kept("not a regular file".to_owned());
        assert_eq!(clean_one(&NOBODY, &path), kept);
        remove_file(&path).unwrap();
    }
}
