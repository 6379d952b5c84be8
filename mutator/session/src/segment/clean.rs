//! Removing what sessions whose process has ended have left in the folder of segments.

use std::fs::{File, remove_file, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ipath_base::error::io_text;
use ipath_target::process::{Presence, Process};

/// Which signal tells of a lease that is to be given back: include/uapi/asm-generic/fcntl.h.
const F_SETSIG: i32 = 10;

/// What became of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// It was removed.
    Removed,
    /// Its process runs.
    Lives,
    /// It stays, for this cause.
    Kept(String),
}

/// Removes the named segments of processes that have ended, as far as they belong to this user, or
/// this is root, and nobody uses them; what became of each.
pub fn clean() -> Vec<(PathBuf, Cleaned)> {
    let clean = |(path, process): (PathBuf, Process)| {
        let cleaned = clean_one(&process, &path);
        (path, cleaned)
    };
    super::all_named().into_iter().map(clean).collect()
}

/// The same at an attach, for segments of this user's alone that nobody has read or written for so long that
/// nobody will come for what was measured.
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
            // What cannot be removed is for `status --clean` to tell of.
            let _ = clean_one(&process, &path);
        }
    }
}

fn clean_one(process: &Process, path: &Path) -> Cleaned {
    match process.life() {
        Presence::Ended => {}
        Presence::Unknown(cause) => return Cleaned::Kept(cause),
        Presence::Here | Presence::OtherProgram => return Cleaned::Lives,
    }
    let removed = unused(path).and_then(|file| {
        // Pid and start time are never given again, so what bears this name now is what was looked
        // at, or something that another has put there, which goes too.
        let removed = remove_file(path);
        drop(file);
        removed
    });
    match removed {
        Ok(()) => Cleaned::Removed,
        Err(error) => Cleaned::Kept(io_text(&error)),
    }
}

/// True if a process is known to have the segment of this path, where it may be one that is not seen from here: in another pid
/// namespace it has another id. This process is not to have it.
pub fn is_in_use(path: &Path) -> bool {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    file.and_then(|file| is_written(&file)).unwrap_or(false)
}

/// The file, locked, if it is this user's and no process has it open or mapped: one in another pid
/// namespace has another id there.
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
        return Err(io::Error::other("another ipath uses it"));
    }
    if !is_written(&file)? {
        Ok(file)
    } else {
        Err(io::Error::other("a process has it mapped"))
    }
}

/// True if a process has the file open for writing, or mapped so.
fn is_written(file: &File) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // A lease for reading is given where nobody has the file open for writing, which a shared map
    // does too (fcntl(2), F_SETLEASE). Who opens it meanwhile waits until it is given back, and the
    // signal that tells of it is one that does nothing.
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

    /// A process id that nothing has: above the most there can be.
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
        let kept = Cleaned::Kept("a process has it mapped".to_owned());
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
