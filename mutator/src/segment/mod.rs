//! The shared segment as the command sees it. Nothing in it is trusted: whoever owns the target
//! can write to it, so every offset, index and length is checked against the size of the map.

mod clean;
mod document;
mod journal;
mod layout;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::mem::{align_of, size_of};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::segment as layout_of;
use abi::segment::{Header, RecordHead, RecordTimer};
use memmap2::MmapRaw;

use crate::faults::step;
use crate::process::Process;

pub use clean::{Cleaned, clean};
pub use document::{
    Document, FunctionDoc, MetricDoc, ModuleDoc, PairDoc, Reaper, RefusedDoc, RegionDoc, SiteDoc,
    StopDoc,
};
pub use journal::Journal;
pub use layout::Shape;

/// Where named segments are.
const FOLDER: &str = "/dev/shm";

/// Why there is no segment to work on.
#[derive(Debug)]
pub enum SegmentError {
    /// There is none.
    Missing,
    /// The system refuses.
    Io(PathBuf, io::Error),
    /// Written by another version.
    Version(u32),
    /// Its contents contradict each other.
    Corrupt(&'static str),
    /// Another command is changing the session.
    Busy,
    /// The document does not fit.
    Full,
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => write!(f, "no session"),
            Self::Io(path, error) => {
                write!(f, "{}: {}", path.display(), crate::error::io_text(error))
            }
            Self::Version(version) => {
                write!(
                    f,
                    "the session is of layout {version}, this ipath knows {}",
                    abi::ABI_VERSION
                )
            }
            Self::Corrupt(what) => write!(f, "the session's segment is corrupt: {what}"),
            Self::Busy => write!(f, "another ipath is changing the session"),
            Self::Full => write!(
                f,
                "there is no room for more functions in the session, or no memory in {FOLDER}"
            ),
        }
    }
}

impl std::error::Error for SegmentError {}

/// A mapped segment.
#[derive(Debug)]
pub struct Segment {
    file: File,
    map: MmapRaw,
    /// Its name in [`FOLDER`]; `None` for one that lives in the target alone.
    path: Option<PathBuf>,
}

/// The name of the segment of a process.
pub fn path_for(process: &Process) -> PathBuf {
    Path::new(FOLDER).join(format!("ipath-{}-{}", process.pid, process.start_time))
}

/// Pid and start time of every named segment.
pub fn all() -> Vec<(i32, u64)> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten();
    let mut found: Vec<(i32, u64)> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let (pid, start) = name.strip_prefix("ipath-")?.split_once('-')?;
            Some((pid.parse().ok()?, start.parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    found
}

impl Segment {
    /// Creates the named segment of a process, owned by the process's owner.
    pub fn create(process: &Process, shape: &Shape) -> Result<Self, SegmentError> {
        use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
        let path = path_for(process);
        let io = |error| SegmentError::Io(path.clone(), error);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(io)?;
        step("segment file");
        if let Ok(owner) = std::fs::metadata(format!("/proc/{}", process.pid)) {
            // Not root: the owner is the same already.
            let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        }
        let fill = |range: std::ops::Range<u64>| {
            // By a system call, see `write_at`.
            file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start)
        };
        let begun = file.set_len(shape.size());
        let begun = begun.and_then(|()| shape.least().into_iter().try_for_each(fill));
        if let Err(error) = begun {
            let _ = std::fs::remove_file(&path);
            return Err(io(error));
        }
        let segment = Self::map(file, Some(path.clone()))?;
        segment.lock()?;
        shape.write(segment.raw_header(), process);
        step("segment header");
        Ok(segment)
    }

    /// Takes a file that the target made, for targets that cannot open the named one.
    pub fn from_target(file: File, process: &Process, shape: &Shape) -> Result<Self, SegmentError> {
        let segment = Self::map(file, None)?;
        segment.lock()?;
        shape.write(segment.raw_header(), process);
        Ok(segment)
    }

    /// Opens the segment of a process's session.
    pub fn open(process: &Process) -> Result<Self, SegmentError> {
        let path = path_for(process);
        match File::options().read(true).write(true).open(&path) {
            Ok(file) if Self::is_abandoned(&file) => {
                let _ = std::fs::remove_file(&path);
                Err(SegmentError::Missing)
            }
            Ok(file) => Self::checked(file, Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::open_in_target(process),
            Err(error) => Err(SegmentError::Io(path, error)),
        }
    }

    /// Whether the file's maker was killed before it had a size.
    fn is_abandoned(file: &File) -> bool {
        const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);
        let is_empty = || file.metadata().is_ok_and(|m| m.len() == 0);
        is_empty() && {
            std::thread::sleep(PATIENCE);
            is_empty()
        }
    }

    /// Opens a segment that has no name, through the target's own mapping of it.
    fn open_in_target(process: &Process) -> Result<Self, SegmentError> {
        let maps = process.maps().map_err(|_| SegmentError::Missing)?;
        let mapping = maps
            .iter()
            .find(|m| m.name.starts_with("/memfd:ipath"))
            .ok_or(SegmentError::Missing)?;
        let (start, end) = (mapping.range.start.0, mapping.range.end.0);
        let path = PathBuf::from(format!(
            "/proc/{}/map_files/{start:x}-{end:x}",
            process.entry()
        ));
        let file = File::options().read(true).write(true).open(&path);
        Self::checked(file.map_err(|e| SegmentError::Io(path, e))?, None)
    }

    fn checked(file: File, path: Option<PathBuf>) -> Result<Self, SegmentError> {
        let segment = Self::map(file, path)?;
        let header = segment.raw_header();
        let is_begun = || {
            header.magic.load(Acquire) == layout_of::MAGIC
                && header.document_turn.load(Acquire) != 0
        };
        match header.magic.load(Acquire) {
            layout_of::MAGIC if is_begun() => {}
            // Its maker holds the lock until there is a session, or was killed before it had
            // touched the target.
            0 | layout_of::MAGIC if segment.lock().is_ok() => {
                segment.unlock();
                if !is_begun() {
                    segment.remove_name();
                    return Err(SegmentError::Missing);
                }
            }
            0 | layout_of::MAGIC => return Err(SegmentError::Busy),
            _ => return Err(SegmentError::Corrupt("magic")),
        }
        let version = header.version.load(Relaxed);
        if version != abi::ABI_VERSION {
            return Err(SegmentError::Version(version));
        }
        Shape::check(header, segment.map.len() as u64).map_err(SegmentError::Corrupt)?;
        Ok(segment)
    }

    fn map(file: File, path: Option<PathBuf>) -> Result<Self, SegmentError> {
        let name = || path.clone().unwrap_or_else(|| PathBuf::from("segment"));
        let len = file
            .metadata()
            .map_err(|e| SegmentError::Io(name(), e))?
            .len();
        if len < abi::PAGE || len % abi::PAGE != 0 {
            return Err(SegmentError::Corrupt("size"));
        }
        let map = MmapRaw::map_raw(&file).map_err(|e| SegmentError::Io(name(), e))?;
        Ok(Self { file, map, path })
    }

    /// Takes the session's lock, for as long as this value lives. Another command's change takes
    /// milliseconds, so a while of waiting is enough.
    pub fn lock(&self) -> Result<(), SegmentError> {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            // SAFETY: the descriptor is open.
            if unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                step("lock");
                return Ok(());
            }
            if std::time::Instant::now() > deadline {
                return Err(SegmentError::Busy);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Gives the lock back.
    pub fn unlock(&self) {
        // SAFETY: the descriptor is open.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }

    /// Removes its name: nobody finds it any more, those who have it mapped keep it.
    pub fn remove_name(&self) {
        if let Some(path) = &self.path {
            // Gone already: another command was as fast.
            let _ = std::fs::remove_file(path);
            step("segment name");
        }
    }

    /// Its path, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Its file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of the whole.
    pub fn size(&self) -> u64 {
        self.map.len() as u64
    }

    fn raw_header(&self) -> &Header {
        // SAFETY: the map is at least a page long and page-aligned; a header is all atomics, so
        // any bytes are a valid value and others may write meanwhile.
        unsafe { &*self.map.as_ptr().cast() }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        self.raw_header()
    }

    /// Item `index` of an area, of which `stride` bytes belong to each; `None` outside the area or
    /// the map.
    fn item<T>(&self, area: usize, index: u64, stride: u64, offset: u64) -> Option<&T> {
        let area = self.header().areas.get(area)?;
        if index >= area.capacity {
            return None;
        }
        let at = area
            .offset
            .checked_add(index.checked_mul(stride)?)?
            .checked_add(offset)?;
        let end = at.checked_add(size_of::<T>() as u64)?;
        if end > self.size() || at % align_of::<T>() as u64 != 0 {
            return None;
        }
        // SAFETY: the item lies inside the map and is aligned; the types used consist of atomics.
        Some(unsafe { &*self.map.as_ptr().add(at as usize).cast() })
    }

    /// Writes bytes into an area of bytes; false where it, or the memory behind it, has no room.
    pub fn write_bytes(&self, area: usize, at: u64, bytes: &[u8]) -> Result<bool, SegmentError> {
        let area = self.header().areas.get(area);
        let area = area.ok_or(SegmentError::Corrupt("areas"))?;
        let end = at.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > area.capacity) {
            return Ok(false);
        }
        self.write_at(area.offset.saturating_add(at), bytes)
    }

    /// Makes an item of an area zeroes, so that it can be written through the map; false where it, or
    /// the memory behind it, has no room.
    fn clear_item<T>(&self, area: usize, index: u64) -> Result<bool, SegmentError> {
        let stride = size_of::<T>() as u64;
        if self.item::<T>(area, index, stride, 0).is_none() {
            return Ok(false);
        }
        let area = self.header().areas.get(area);
        let start = area.map_or(0, |area| area.offset) + index * stride;
        self.write_at(start, &vec![0; size_of::<T>()])
    }

    /// Writes by a system call, which returns an error where touching the map would raise SIGBUS; false
    /// where there is no memory.
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<bool, SegmentError> {
        use std::os::unix::fs::FileExt;
        match self.file.write_all_at(bytes, at) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            Err(error) => {
                let name = self
                    .path
                    .clone()
                    .unwrap_or_else(|| PathBuf::from("segment"));
                Err(SegmentError::Io(name, error))
            }
        }
    }

    /// Node `index`.
    pub fn node(&self, index: u32) -> Option<&layout_of::Node> {
        self.item(
            layout_of::AREA_NODES,
            index.into(),
            size_of::<layout_of::Node>() as u64,
            0,
        )
    }

    /// Thread `index`.
    pub fn thread(&self, index: u32) -> Option<&layout_of::ThreadEntry> {
        let stride = size_of::<layout_of::ThreadEntry>() as u64;
        self.item(layout_of::AREA_THREADS, index.into(), stride, 0)
    }

    /// Module `index`.
    pub fn module(&self, index: u32) -> Option<&layout_of::ModuleEntry> {
        let stride = size_of::<layout_of::ModuleEntry>() as u64;
        self.item(layout_of::AREA_MODULES, index.into(), stride, 0)
    }

    /// Histogram `index`.
    pub fn histogram(&self, index: u32) -> Option<&layout_of::Histogram> {
        let stride = size_of::<layout_of::Histogram>() as u64;
        self.item(layout_of::AREA_HISTOGRAMS, index.into(), stride, 0)
    }

    /// The head of record `index`.
    pub fn record(&self, index: u64) -> Option<&RecordHead> {
        let stride = self.header().record_stride.load(Relaxed);
        self.item(layout_of::AREA_RECORDS, index, stride, 0)
    }

    /// Timer `number` of record `index`.
    pub fn record_timer(&self, index: u64, number: usize) -> Option<&RecordTimer> {
        let stride = self.header().record_stride.load(Relaxed);
        let offset = size_of::<RecordHead>() + number.checked_mul(size_of::<RecordTimer>())?;
        let fits = (offset + size_of::<RecordTimer>()) as u64 <= stride;
        fits.then(|| self.item(layout_of::AREA_RECORDS, index, stride, offset as u64))?
    }
}
