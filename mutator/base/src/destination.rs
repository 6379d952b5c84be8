//! Where a result is written: a file that is replaced as a whole, or what takes bytes as they come.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What an `-o` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A descriptor of this process: `-`, `/dev/stdout`, `/dev/stderr`, `/dev/fd/N`.
    Descriptor(RawFd),
    /// A pipe or a device, which is opened and written to.
    Direct(PathBuf),
    /// A file, or what is to become one. It is replaced by a new one: a symbolic link too, whatever
    /// it leads to, as one that somebody else has placed could lead anywhere.
    File(PathBuf),
}

impl Destination {
    /// What `path` names.
    ///
    /// # Errors
    /// Nothing that can be written: a folder, a block device, a socket.
    pub fn of(path: &Path) -> io::Result<Self> {
        if let Some(descriptor) = descriptor(path) {
            return Ok(Self::Descriptor(descriptor));
        }
        let kind = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::File(path.to_owned()));
            }
            Err(e) => return Err(e),
        };
        if kind.is_fifo() || kind.is_char_device() {
            return Ok(Self::Direct(path.to_owned()));
        }
        let is_folder = || fs::metadata(path).is_ok_and(|m| m.is_dir());
        if kind.is_dir() || (kind.is_symlink() && is_folder()) {
            return Err(io::Error::other("is a directory"));
        }
        if kind.is_file() || kind.is_symlink() {
            Ok(Self::File(path.to_owned()))
        } else {
            Err(io::Error::other(
                "neither a file, nor a pipe, nor a character device",
            ))
        }
    }

    /// Checks what can be checked before there is anything to write.
    ///
    /// # Errors
    /// The right to write, or the folder, is missing.
    pub fn check(&self) -> io::Result<()> {
        use rustix::fs::{Access, access};
        match self {
            Self::Descriptor(descriptor) => {
                // SAFETY: takes no pointers; a number that is no descriptor is an error.
                let flags = unsafe { libc::fcntl(*descriptor, libc::F_GETFL) };
                match flags {
                    -1 => Err(io::Error::last_os_error()),
                    _ if flags & libc::O_ACCMODE == libc::O_RDONLY => {
                        Err(io::Error::from_raw_os_error(libc::EBADF))
                    }
                    _ => Ok(()),
                }
            }
            Self::Direct(path) => Ok(access(path, Access::WRITE_OK)?),
            Self::File(path) => {
                path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
                Ok(access(folder(path), Access::WRITE_OK)?)
            }
        }
    }

    /// True where writing can wait for a reader, without end.
    pub fn may_wait(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// Writes a result: a file whole or not at all, so that a reader finds the old content or the
    /// new and never a part.
    ///
    /// # Errors
    /// What the system or `content` gives. What stood in a file then still does, and nothing is
    /// left beside it.
    pub fn write(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let file = match self {
            Self::Descriptor(descriptor) => {
                self.check()?;
                duplicate(*descriptor)?
            }
            Self::Direct(path) => open_direct(path, 0)?,
            Self::File(path) => return replace(path, content),
        };
        let mut out = BufWriter::new(file);
        content(&mut out)?;
        out.flush()
    }

    /// The same for those who have more to do than to wait for a reader: where nobody reads that is an error, and so it is
    /// where a reader makes it wait for long.
    ///
    /// # Errors
    /// As with [`Destination::write`]. What a pipe has taken by then stays in it.
    pub fn write_soon(
        &self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = match self {
            Self::Descriptor(descriptor) => {
                self.check()?;
                of_descriptor(*descriptor)?
            }
            Self::Direct(path) => open_direct(path, libc::O_NONBLOCK)?,
            Self::File(path) => return replace(path, content),
        };
        let mut out = BufWriter::new(Impatient::of(file));
        content(&mut out)?;
        out.flush()
    }
}

mod directory;
mod impatient;

pub use directory::{Folder, Unfinished};
use impatient::{Impatient, duplicate, of_descriptor};

/// The descriptor that a path names.
fn descriptor(path: &Path) -> Option<RawFd> {
    let text = path.to_str()?;
    match text {
        "-" | "/dev/stdout" => Some(libc::STDOUT_FILENO),
        "/dev/stderr" => Some(libc::STDERR_FILENO),
        _ => {
            let number = text
                .strip_prefix("/dev/fd/")
                .or_else(|| text.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok().filter(|&n: &RawFd| n >= 0)
        }
    }
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn open_direct(path: &Path, more: i32) -> io::Result<File> {
    let file = File::options()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY | more)
        .open(path)
        .map_err(|e| match (e.raw_os_error(), fs::symlink_metadata(path)) {
            (Some(libc::ENXIO), Ok(it)) if it.file_type().is_fifo() => {
                io::Error::other("nobody reads it")
            }
            _ => e,
        })?;
    // Another may have taken its place since it was looked at.
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        Ok(file)
    } else {
        Err(io::Error::other("no longer a pipe or device"))
    }
}

fn replace(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let (file, temporary) = create_beside(path)?;
    let written = (|| {
        let mut out = BufWriter::new(file);
        content(&mut out)?;
        drop(out.into_inner()?);
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file in the folder of `path`, under a name that nobody can foresee.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    make_beside(path, |temporary| {
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .custom_flags(libc::O_NOFOLLOW)
            .open(temporary)
    })
}

/// What `make` makes in the folder of `path`, where it finds nothing of that name.
fn make_beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    const TRIES: usize = 100;
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..TRIES {
        let temporary = folder(path).join(format!(".ipath-{:016x}.tmp", random()?));
        match make(&temporary) {
            Ok(made) => return Ok((made, temporary)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: writes at most the length of a value that lives.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) {
        Ok(n) if n == bytes.len() => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
