//! Files that ipath opens by a name it did not make: modules, debug files, profiles.
//!
//! Such a name may lead to anything, and the file may change while it is read. Nothing is opened but a
//! regular file, nothing waits, and no file takes more memory than it has contents.

#[cfg(test)]
mod tests;
mod text;

pub use text::lines_of;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use crate::guard::Watch;
use crate::starved::bearing;

/// The text after the last slash of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Opens a regular file for reading.
///
/// It is looked at before it is opened, through a descriptor that opens nothing (O_PATH): opening alone lets
/// the writer of a FIFO go on, and rewinds a tape.
///
/// # Errors
/// What the system gives, or that it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let place = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)?;
    open_place(&place)
}

/// The same of what has been looked up (O_PATH).
///
/// # Errors
/// As [`open_regular`].
pub fn open_place(place: &File) -> io::Result<File> {
    let kind = place.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !kind.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // The very file that was looked at, whatever its name leads to by now.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    File::options().read(true).custom_flags(flags).open(path)
}

/// Bytes that a file claims for each that it has on its disk, at most. No file system packs more into a block
/// than this; where it is more, there are holes.
const EACH: u64 = 64;
/// A file that claims no more than this is never sparse.
const SMALL: u64 = 1 << 20;
/// Largest file that is read as a whole.
const LARGEST: u64 = 4 << 30;

/// What tells of a file that it has been written anew: when it was written last (st_mtim), and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

impl Stamp {
    /// That of a file of which stat(2) says this.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            seconds: meta.mtime(),
            nanoseconds: meta.mtime_nsec(),
            size: meta.len(),
        }
    }
}

/// The contents of a file, for as long as this value lives: a copy of them, or a map that is guarded.
#[derive(Clone, Debug)]
pub struct FileBytes {
    contents: Arc<Contents>,
    stamp: Stamp,
}

#[derive(Debug)]
enum Contents {
    Read(Vec<u8>),
    Mapped(Mapped),
}

/// A private, read-only map.
#[derive(Debug)]
struct Mapped {
    /// Ends before the map.
    watch: Watch,
    map: Mmap,
}

impl Mapped {
    /// Maps a file that is not empty; `None` where there are too many maps.
    fn of(file: &File) -> io::Result<Option<Self>> {
        // SAFETY: the map is private and read only. What changes the file while it is mapped is root or the
        // user that runs ipath, who can change ipath as well; a page that goes is replaced by zeroes.
        let map = unsafe { Mmap::map(file)? };
        // SAFETY: as above.
        let watch = unsafe { Watch::over(map.as_ptr(), map.len())? };
        Ok(watch.map(|watch| Self { watch, map }))
    }
}

impl FileBytes {
    /// The contents of the regular file at `path`.
    ///
    /// # Errors
    /// As [`open_regular`] and [`FileBytes::of`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(&open_regular(path)?)
    }

    /// The contents of a regular file: mapped where only root and ipath's own user can change it, else read.
    ///
    /// # Errors
    /// What the system gives, or that the file has holes or is too large.
    pub fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let there = meta.blocks().saturating_mul(512);
        if meta.len() > there.saturating_mul(EACH).max(SMALL) {
            return Err(io::Error::other(format!(
                "sparse: {} bytes of {} are on the disk",
                there,
                meta.len()
            )));
        }
        if is_trusted(&meta)
            && meta.len() > 0
            && let Some(map) = Mapped::of(file)?
        {
            return Ok(Self::with(Contents::Mapped(map), &meta));
        }
        Ok(Self::with(Contents::Read(read(file, meta.len())?), &meta))
    }

    /// Contents derived from those of another file.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self {
            contents: Arc::new(Contents::Read(bytes)),
            stamp: Stamp::default(),
        }
    }

    fn with(contents: Contents, meta: &Metadata) -> Self {
        Self {
            contents: Arc::new(contents),
            stamp: Stamp::of(meta),
        }
    }

    /// What tells that the file has been written anew since it was opened.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &*self.contents {
            Contents::Read(bytes) => bytes,
            Contents::Mapped(mapped) => &mapped.map,
        }
    }

    /// True if the file has been cut short since it was opened. What it has lost reads as zeroes.
    pub fn is_cut(&self) -> bool {
        match &*self.contents {
            Contents::Read(_) => false,
            Contents::Mapped(mapped) => mapped.watch.is_cut(),
        }
    }
}

/// True if only root and ipath's own user can change the file.
fn is_trusted(meta: &Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    // SAFETY: takes no argument and cannot fail.
    let own = unsafe { libc::geteuid() };
    (meta.uid() == 0 || meta.uid() == own) && meta.mode() & WRITABLE_BY_OTHERS == 0
}

/// The contents of a file that has claimed `len` bytes: no more than that, less where it has become shorter.
fn read(mut file: &File, len: u64) -> io::Result<Vec<u8>> {
    if len > LARGEST {
        return Err(io::Error::other(format!(
            "{len} bytes are too many to read, and it cannot be mapped: others can change it"
        )));
    }
    let mut bytes = Vec::new();
    bearing(|| bytes.try_reserve_exact(len as usize))
        .map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    (&mut file).take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}
