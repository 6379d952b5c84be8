//! Files whose names come from elsewhere: modules, debug files, profiles.
//!
//! Such a name may lead to anything, and the file may change while it is read. So only regular
//! files are opened, nothing blocks, and no file takes more memory than it has contents.

#[cfg(test)]
mod tests;
mod text;

pub use text::lines_of;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use crate::cache::Shared;
use crate::guard::Watch;
use crate::starved::bearing;

/// The part of a path after its last slash, or the whole path if it has no slash.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Opens a regular file for reading.
///
/// The type is checked before the file is opened, through an O_PATH descriptor: opening alone would
/// unblock the writer of a FIFO, or rewind a tape.
///
/// # Errors
/// Returns the errors of the system, or an error if it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let place = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)?;
    open_place(&place)
}

/// Opens a regular file that has been looked up (O_PATH).
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
    // Reopen exactly the file that was checked, even if its name now leads elsewhere.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    File::options().read(true).custom_flags(flags).open(path)
}

/// The maximum ratio of a file's size to its bytes on disk. No file system compresses more
/// strongly, so a larger ratio means that the file has holes.
const EACH: u64 = 64;
/// Files up to this size are never treated as sparse.
const SMALL: u64 = 1 << 20;
/// The size in bytes of the largest file that is read into memory. A mapped file may be larger.
const LARGEST: u64 = 4 << 30;

/// Identifies a version of a file: its modification time (st_mtim) and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The modification time in whole seconds since the Unix epoch.
    seconds: i64,
    /// The part of a second after `seconds`.
    nanoseconds: i64,
    /// In bytes.
    size: u64,
}

impl Stamp {
    /// The stamp of a file with these metadata.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            seconds: meta.mtime(),
            nanoseconds: meta.mtime_nsec(),
            size: meta.len(),
        }
    }
}

/// Identifies the contents of a file more strictly than its [`Stamp`]: also by its device, its
/// inode and the time of its last change (st_ctim).
///
/// A program can set a modification time (`cp -p`, `install -p`, builds with clamped times), but
/// not the time of a change. That time also changes with the file's name and mode, so an unequal
/// version does not mean that the contents changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    stamp: Stamp,
    /// The device and the inode.
    file: (u64, u64),
    /// The time of the last change in whole seconds since the Unix epoch.
    seconds: i64,
    /// The part of a second after `seconds`.
    nanoseconds: i64,
}

impl Version {
    /// The version of a file with these metadata.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            stamp: Stamp::of(meta),
            file: (meta.dev(), meta.ino()),
            seconds: meta.ctime(),
            nanoseconds: meta.ctime_nsec(),
        }
    }
}

/// The contents of a file, valid as long as this value lives: a copy, or a guarded map.
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
    /// Dropped before the map.
    watch: Watch,
    map: Mmap,
}

impl Mapped {
    /// Maps a nonempty file. `None` if [`Watch::over`] refuses because of too many guarded maps.
    fn of(file: &File) -> io::Result<Option<Self>> {
        // SAFETY: the map is private and read only. Only root or the user of ipath can change the
        // file while it is mapped, and both can change ipath as well. A page that disappears is
        // replaced by zeroes.
        let map = unsafe { Mmap::map(file)? };
        // SAFETY: as above.
        let watch = unsafe { Watch::over(map.as_ptr(), map.len())? };
        Ok(watch.map(|watch| Self { watch, map }))
    }
}

impl Default for FileBytes {
    fn default() -> Self {
        Self::of_bytes(Vec::new())
    }
}

impl FileBytes {
    /// Opens the regular file at `path`.
    ///
    /// # Errors
    /// As [`open_regular`] and [`FileBytes::of`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(&open_regular(path)?)
    }

    /// The contents of a regular file. It is mapped if only root and the user of ipath can change
    /// it, else read.
    ///
    /// # Errors
    /// Returns the errors of the system, or an error if the file has holes or is too large.
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

    /// Contents derived from the contents of another file. Their stamp is the default one.
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

    /// The stamp that the file had when it was opened. A rewritten file has another stamp.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        match &*self.contents {
            Contents::Read(bytes) => bytes,
            Contents::Mapped(mapped) => &mapped.map,
        }
    }

    /// The part that is the whole file.
    pub fn whole(&self) -> FilePart {
        FilePart {
            file: self.clone(),
            range: 0..self.bytes().len(),
        }
    }

    /// The part of the file that `bytes` is. `None` if `bytes` is not a slice of the file's bytes.
    pub fn part(&self, bytes: &[u8]) -> Option<FilePart> {
        let all = self.bytes().as_ptr_range();
        let part = bytes.as_ptr_range();
        (all.start <= part.start && part.end <= all.end).then(|| {
            let start = part.start.addr() - all.start.addr();
            FilePart {
                file: self.clone(),
                range: start..start + bytes.len(),
            }
        })
    }

    /// True if the file is mapped, was truncated after it was opened, and a page of the lost part
    /// was read. The lost part reads as zeroes. A copy cannot lose a part: always false.
    pub fn is_cut(&self) -> bool {
        match &*self.contents {
            Contents::Read(_) => false,
            Contents::Mapped(mapped) => mapped.watch.is_cut(),
        }
    }
}

/// A part of a file's contents. It keeps all contents in memory.
#[derive(Clone, Debug, Default)]
pub struct FilePart {
    file: FileBytes,
    /// In bytes from the file's start.
    range: Range<usize>,
}

impl Deref for FilePart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }
}

impl Shared for FileBytes {
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.contents) > 1
    }
}

/// True if only root and the user of ipath can change the file.
fn is_trusted(meta: &Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    // SAFETY: takes no argument and cannot fail.
    let own = unsafe { libc::geteuid() };
    (meta.uid() == 0 || meta.uid() == own) && meta.mode() & WRITABLE_BY_OTHERS == 0
}

/// Reads a file whose metadata state the size `len` in bytes. Reads at most that, and less if the
/// file has shrunk. It is an error if `len` exceeds [`LARGEST`] or the available memory.
fn read(mut file: &File, len: u64) -> io::Result<Vec<u8>> {
    if len > LARGEST {
        return Err(io::Error::other(format!(
            "{len} bytes are too many to read, and it cannot be mapped because other users can \
            change it"
        )));
    }
    let mut bytes = Vec::new();
    bearing(|| bytes.try_reserve_exact(len as usize))
        .map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    (&mut file).take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}
