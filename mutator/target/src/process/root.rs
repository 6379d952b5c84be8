//! The root folder of a process, in which its paths are resolved.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use super::Process;

/// The root folder of a process at the time of construction. It outlives the process.
///
/// Lookups stay below this folder whatever the links say. Absolute links start here (openat2(2),
/// RESOLVE_IN_ROOT).
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// Opens the root of a living process.
    ///
    /// # Errors
    /// The process has ended, or access is denied.
    pub fn of(process: &Process) -> io::Result<Self> {
        let path = format!("/proc/{}/root", process.entry());
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(open(path.as_str(), flags, Mode::empty())?))
    }

    /// Opens a path for inspection (O_PATH).
    ///
    /// # Errors
    /// The path does not exist.
    pub fn place(&self, path: &Path) -> io::Result<File> {
        self.place_by(path, OFlag::empty())
    }

    /// Opens a path whose last component must not be a link.
    ///
    /// # Errors
    /// The path does not exist, or is a link.
    pub fn place_itself(&self, path: &Path) -> io::Result<File> {
        let place = self.place_by(path, OFlag::O_NOFOLLOW)?;
        if place.metadata()?.file_type().is_symlink() {
            Err(io::Error::from_raw_os_error(libc::ELOOP))
        } else {
            Ok(place)
        }
    }

    fn place_by(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        let below = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | flags)
            .resolve(below);
        Ok(File::from(openat2(&self.0, path, how)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn links_lead_nowhere_else() {
        let name = format!("ipath-root-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("etc")).expect("an own folder");
        fs::write(folder.join("etc/passwd"), "its own").expect("an own file");
        symlink("/etc/passwd", folder.join("link")).expect("an own link");
        symlink("../../../etc", folder.join("above")).expect("an own link");
        let root = Root(open(&folder, OFlag::O_PATH, Mode::empty()).expect("a folder"));
        let own = fs::metadata(folder.join("etc/passwd")).expect("a file");
        for path in ["link", "/link", "/above/passwd", "../etc/passwd"] {
            let found = root
                .place(Path::new(path))
                .and_then(|place| place.metadata());
            assert_eq!(found.expect("a file").ino(), own.ino(), "{path}");
        }
        assert!(root.place_itself(Path::new("link")).is_err());
        assert!(root.place_itself(Path::new("/above/passwd")).is_ok());
        fs::remove_dir_all(&folder).expect("ours");
    }
}
