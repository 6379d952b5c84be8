//! Destinations of results. A file is replaced as a whole. A descriptor, pipe or device receives
//! the bytes in order.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The destination named by `-o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A descriptor of this process: `-`, `/dev/stdout`, `/dev/stderr`, `/dev/fd/N`,
    /// `/proc/self/fd/N`.
    Descriptor(RawFd),
    /// A pipe or a device, which is opened and written to.
    Direct(PathBuf),
    /// The path of a file, which may not exist yet. A new file replaces it. A symbolic link is
    /// replaced and not followed, because another user may have created it.
    File(PathBuf),
}

impl Destination {
    /// The destination named by `path`. A missing file is a [`Destination::File`].
    ///
    /// # Errors
    /// `path` names a folder, a block device or a socket, or it cannot be looked up.
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

    /// Checks that [`Destination::write`] can begin, without opening or creating anything.
    ///
    /// # Errors
    /// The descriptor is closed or read-only, or the pipe, the device or the file's folder is not
    /// writable, or that folder does not exist.
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

    /// True if a write may wait for a reader without a time limit.
    pub fn may_wait(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// Writes a result. A file is replaced atomically: a reader sees its old or its new content,
    /// never a part.
    ///
    /// # Errors
    /// Those of the system and of `content`. A file then keeps its old content, and no temporary
    /// file remains. A descriptor, pipe or device has received the bytes before the error.
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

    /// As [`Destination::write`], for callers that cannot wait for a reader.
    ///
    /// # Errors
    /// Those of [`Destination::write`], or there is no reader, or all waits for it together take
    /// 2 s. A pipe has received the bytes before the error.
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

/// The descriptor named by a path, as listed at [`Destination::Descriptor`]. `None` for any other
/// path.
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

/// The folder that contains `path`: `.` if `path` is a name without a folder.
fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Opens a pipe or a device for writing, with `more` as additional flags of open(2). Fails if
/// `path` no longer names a pipe or a device. With O_NONBLOCK, it also fails if a pipe has no
/// reader.
fn open_direct(path: &Path, more: i32) -> io::Result<File> {
    let file = File::options()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY | more)
        .open(path)
        .map_err(|e| match (e.raw_os_error(), fs::symlink_metadata(path)) {
            (Some(libc::ENXIO), Ok(it)) if it.file_type().is_fifo() => {
                io::Error::other("it has no reader")
            }
            _ => e,
        })?;
    // Another file may have replaced it since the check.
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        Ok(file)
    } else {
        Err(io::Error::other("no longer a pipe or device"))
    }
}

/// Writes `content` to a temporary file in the folder of `path`, then renames it to `path`. After
/// an error the temporary file is removed, and `path` is unchanged.
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

/// Creates a file in the folder of `path`, with an unpredictable name. Returns it with its path.
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

/// Calls `make` with a path in the folder of `path` that has an unpredictable name. Tries other
/// names, up to 100 in all, while the path exists already. Returns the result of `make` and the
/// path.
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
    // SAFETY: writes at most the length of a live value.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) {
        Ok(n) if n == bytes.len() => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
