//! The shared segment as the command sees it. Nothing in it is trusted: whoever owns the target
//! can write to it, so every offset, index and length is checked against the size of the map.

mod addresses;
mod asked;
mod clean;
mod departing;
mod document;
mod error;
mod inside;
mod journal;
mod layout;
mod loads;
mod lock;
mod measuring;
mod module;
mod phases;
mod registered;
mod role;
mod rows;
mod schema;
mod shared;
mod single;
mod site;
mod throttled;
mod transfers;
mod trust;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::mem::{align_of, size_of};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use abi::segment as layout_of;
use abi::segment::{Column, Header, Record, RecordHead, columns_stride};
use memmap2::MmapRaw;

use ipath_base::guard::Watch;
use ipath_target::fault_injection::step;
use ipath_target::process::identity::{FileId, file_id};
use ipath_target::process::{Mapping, Presence, Process};
use lock::PATIENCE;
use trust::FOLDER;

pub use asked::{Asking, Question};
pub use clean::{Cleaned, clean, is_in_use, sweep};
pub use departing::{Departs, Departure};
pub use document::{
    CopyDoc, Document, FunctionDoc, MetricDoc, PendingDoc, RefusedDoc, RegionDoc, RuntimeDoc,
    StopDoc,
};
pub use error::SegmentError;
pub use inside::{EarlierDoc, EdgeDoc, InsideDoc, PathCounts, PathsDoc};
pub use journal::Journal;
pub use layout::Shape;
pub use lock::Lock;
pub use measuring::{MadeFor, Remeasure};
pub use module::ModuleDoc;
pub use registered::RegisteredTable;
pub use role::{Forking, Reach, Role, State, Witness};
pub use schema::{ColumnDoc, CounterDoc, SchemaDoc, TooMuch};
use shared::Shared;
pub use single::{CallRead, Kept};
pub use site::{BankedDoc, KeptDoc, PairDoc, SiteDoc};
pub use throttled::ThrottledDoc;
pub(crate) use transfers::edges_of;
pub use trust::{Claim, family_at, is_segment_name, is_unnamed};

/// A mapped segment.
#[derive(Debug)]
pub struct Segment {
    file: Arc<File>,
    /// Dropped before the map.
    watch: Watch,
    map: MmapRaw,
    /// The segment's path in [`FOLDER`]. `None` for a segment that only the target has (a memfd).
    path: Option<PathBuf>,
    /// See [`Self::is_draft()`].
    is_draft: bool,
}

/// The processes, except `others`, that map a segment of their own, or may: a mapping that cannot
/// be inspected counts. A process whose maps cannot be read is left out.
pub fn mapped(others: &[Process]) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let process = |pid| Process::find(ipath_target::process::Pid(pid)).ok();
    let has_segment = |process: &Process| has_mapped(process, &process.maps().unwrap_or_default());
    let found = pids.filter_map(process).filter(|p| !others.contains(p));
    found.filter(has_segment).collect()
}

/// True if these mappings include a segment of the process itself, or if that cannot be determined.
/// A segment of another process, which this one inspects, does not count.
pub fn has_mapped(process: &Process, maps: &[Mapping]) -> bool {
    !matches!(Claim::in_target(process, maps), Ok(None))
}

/// The trusted named segments and their processes, one per process. Sorted by process id, then by
/// start time.
pub fn named() -> Vec<(PathBuf, Process)> {
    let mut found = all_named();
    found.dedup_by(|(_, a), (_, b)| a == b);
    found
}

/// Like [`named`], but with all segments of a process that has several.
fn all_named() -> Vec<(PathBuf, Process)> {
    let of = |(path, (pid, start_time)): (PathBuf, (i32, u64))| {
        let process = Process {
            pid: ipath_target::process::Pid(pid),
            start_time,
        };
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        let is_trusted = trust::is_trusted(&metadata, trust::owner_of(&process));
        is_trusted.then_some((path, process))
    };
    let mut found: Vec<(PathBuf, Process)> = trust::names().into_iter().filter_map(of).collect();
    let key = |p: &Process| (p.pid, p.start_time);
    found.sort_by_key(|(_, process)| key(process));
    found
}

impl Segment {
    /// Creates the named segment of a process, owned by the process's owner, and takes its lock.
    /// The error is `AlreadyExists` if another command was faster.
    pub fn create(process: &Process, shape: &Shape) -> Result<(Self, Lock), SegmentError> {
        use std::os::unix::fs::fchown;
        let (file, path) = new_file(process)?;
        let io = |error| SegmentError::Io(path.clone(), error);
        let give_up = |error: SegmentError| {
            let _ = std::fs::remove_file(&path);
            Err(error)
        };
        step("segment file");
        let file = Arc::new(file);
        let lock = match Lock::take(&file, PATIENCE) {
            Ok(lock) => lock,
            Err(error) => return give_up(error),
        };
        // A command that took the lock in between has found a file without a size, and has removed
        // its name.
        if file.metadata().map_err(io)?.nlink() == 0 {
            return Err(io(io::ErrorKind::AlreadyExists.into()));
        }
        if let Some(owner) = trust::owner_of(process) {
            // Without root, the owner is the same already.
            let _ = fchown(&*file, Some(owner), None);
        }
        let mut is_draft = false;
        let begun = file.set_len(shape.size());
        let begun = begun.and_then(|()| match shape.populate_least(&file) {
            // The header is enough for a draft, which only announces the regions about to be
            // mapped.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                is_draft = true;
                file.set_len(0)?;
                file.set_len(shape.size())?;
                // Writes by a system call: see `write_at`.
                std::os::unix::fs::FileExt::write_all_at(&*file, &[0; abi::PAGE as usize], 0)
            }
            other => other,
        });
        if let Err(error) = begun {
            return give_up(io(error));
        }
        let segment = match Self::map(file, Some(path.clone())) {
            Ok(segment) => Self {
                is_draft,
                ..segment
            },
            Err(error) => return give_up(error),
        };
        shape.write(segment.header(), process);
        step("segment header");
        Ok((segment, lock))
    }

    /// Takes over a file that the target created because it cannot open the named one, and takes
    /// its lock.
    ///
    /// # Errors
    /// [`SegmentError::Full`] without memory for it. Otherwise the file cannot be mapped or locked.
    pub fn from_target(
        file: File,
        process: &Process,
        shape: &Shape,
    ) -> Result<(Self, Lock), SegmentError> {
        let segment = Self::map(Arc::new(file), None)?;
        let lock = segment.lock()?;
        match shape.populate_least(segment.file()) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(SegmentError::Full);
            }
            populated => populated.map_err(|e| segment.io(e))?,
        }
        shape.write(segment.header(), process);
        Ok((segment, lock))
    }

    /// Opens the segment of a process's session for reading. Changes nothing.
    ///
    /// # Errors
    /// [`SegmentError::Missing`] if there is no session. [`SegmentError::Busy`] while another
    /// command creates it. Otherwise the segment cannot be read or is not valid.
    pub fn open(process: &Process) -> Result<Self, SegmentError> {
        // A named segment is found even without maps.
        let maps = || match process.life() {
            Presence::Here => Ok(process.maps().unwrap_or_default()),
            _ => Ok(Vec::new()),
        };
        let claim = Claim::find(process, maps)?.ok_or(SegmentError::Missing)?;
        if claim.is_begun()? {
            Self::of(claim, process)
        } else {
            // Its creator holds the lock, or was killed before it touched the target.
            match Lock::take(&claim.file, Duration::ZERO) {
                Ok(_) => Err(SegmentError::Missing),
                Err(error) => Err(error),
            }
        }
    }

    /// Like [`Self::open`], for a command that will change the session. Removes the name of a
    /// segment whose creator was killed before it touched the process.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_to_change(process: &Process) -> Result<Self, SegmentError> {
        let maps = || Ok(process.maps().unwrap_or_default());
        if process.maps().is_ok()
            && let Some(claim) = Claim::find(process, maps)?
            && !claim.is_begun()?
        {
            let _lock = claim.lock()?;
            if claim.is_named() && !claim.is_begun()? {
                claim.remove_name();
            }
        }
        Self::open(process)
    }

    /// Opens a claimed file as the segment of a process. Fails if its header does not match.
    pub fn of(claim: Claim, process: &Process) -> Result<Self, SegmentError> {
        let is_mapped = claim.mapped;
        let segment = Self::map(claim.file, claim.path)?;
        let header = segment.header();
        if header.magic.load(Acquire) != layout_of::MAGIC {
            return Err(SegmentError::Corrupt("magic"));
        }
        let version = header.version.load(Relaxed);
        if version != abi::ABI_VERSION {
            return Err(SegmentError::Version(version));
        }
        let (pid, start) = (header.pid.load(Relaxed), header.start_time.load(Relaxed));
        // The creator may have been in a pid namespace of the process. That the process maps this
        // file is stronger evidence.
        let is_known = pid as i32 == process.pid.0 || is_mapped && process.has_id(pid as i32);
        if !is_known || start != process.start_time {
            return Err(SegmentError::Corrupt("process"));
        }
        Shape::check(header, segment.size()).map_err(SegmentError::Corrupt)?;
        segment.check_whole()?;
        Ok(segment)
    }

    /// Maps a segment's file. Does not check its header.
    /// The same segment, mapped once more.
    ///
    /// # Errors
    /// The segment cannot be mapped.
    pub fn again(&self) -> Result<Self, SegmentError> {
        Self::map(Arc::clone(&self.file), self.path.clone())
    }

    fn map(file: Arc<File>, path: Option<PathBuf>) -> Result<Self, SegmentError> {
        let name = || path.clone().unwrap_or_else(|| PathBuf::from("segment"));
        let len = file
            .metadata()
            .map_err(|e| SegmentError::Io(name(), e))?
            .len();
        if len < abi::PAGE || len % abi::PAGE != 0 {
            return Err(SegmentError::Corrupt("size"));
        }
        let map = MmapRaw::map_raw(&*file).map_err(|e| SegmentError::Io(name(), e))?;
        // SAFETY: the map is this value's own, and is only ever accessed as atomics.
        let watch = unsafe { Watch::over(map.as_ptr(), map.len()) };
        let watch = watch.and_then(|w| w.ok_or_else(|| io::Error::other("too many are open")));
        let watch = watch.map_err(|e| SegmentError::Io(name(), e))?;
        Ok(Self {
            file,
            watch,
            map,
            path,
            is_draft: false,
        })
    }

    /// True if there was too little memory for a session. The file then only announces the regions
    /// about to be mapped, and the runtime must not use it.
    pub fn is_draft(&self) -> bool {
        self.is_draft
    }

    /// Takes the session's lock.
    ///
    /// # Errors
    /// [`SegmentError::Busy`] if another command holds it for 10 seconds.
    pub fn lock(&self) -> Result<Lock, SegmentError> {
        Lock::take(&self.file, PATIENCE)
    }

    /// The device and inode of the segment's file, as in maps.
    ///
    /// # Errors
    /// The file's metadata cannot be read.
    pub fn file_id(&self) -> Result<FileId, SegmentError> {
        let metadata = self.file.metadata();
        metadata.map(|m| file_id(&m)).map_err(|e| self.io(e))
    }

    /// True if a mapping is of this very file.
    pub fn is_in(&self, mapping: &Mapping) -> bool {
        self.file_id().is_ok_and(|id| id == mapping.file)
    }

    /// True if the segment's name still leads to its file, or if it has no name.
    pub fn is_named(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let there = std::fs::symlink_metadata(path).map(|m| file_id(&m));
        matches!((there, self.file_id()), (Ok(a), Ok(b)) if a == b)
    }

    /// Returns an error if the file has been truncated.
    pub fn check_whole(&self) -> Result<(), SegmentError> {
        let len = self.file.metadata().map_err(|e| self.io(e))?.len();
        if self.watch.is_cut() || len < self.size() {
            Err(SegmentError::Corrupt("made shorter"))
        } else {
            Ok(())
        }
    }

    /// The error for data that does not fit. A truncated file also seems to be full: the header
    /// reads as zeroes, even if a later write has extended the file again.
    pub fn full(&self) -> SegmentError {
        match self.header().magic.load(Acquire) {
            layout_of::MAGIC => self.check_whole().err().unwrap_or(SegmentError::Full),
            _ => SegmentError::Corrupt("made shorter"),
        }
    }

    /// The segment's error for a system error on its file.
    pub fn io(&self, error: io::Error) -> SegmentError {
        let name = self.path.clone();
        SegmentError::Io(name.unwrap_or_else(|| PathBuf::from("segment")), error)
    }

    /// The offset of an area in the segment's file and the area's size, both in bytes. Both are 0
    /// if there is no such area.
    pub fn area_bytes(&self, area: usize) -> (u64, u64) {
        let stride = Shape::stride(area, self.header().columns.load(Relaxed));
        let place = self.header().areas.get(area);
        place.map_or((0, 0), |a| {
            (a.offset(), a.capacity().saturating_mul(stride))
        })
    }

    /// Limits a claimed number of items of an area. The result is at most the area's capacity, and
    /// at most the number of items for which the file has memory.
    pub fn used(&self, area: usize, claimed: u64) -> u64 {
        /// Bytes in a block of stat(2).
        const BLOCK: u64 = 512;
        let stride = Shape::stride(area, self.header().columns.load(Relaxed));
        let capacity = self.header().areas.get(area).map_or(0, |a| a.capacity());
        let written = self.file.metadata().map_or(0, |m| m.blocks() * BLOCK);
        claimed.min(capacity).min(written / stride.max(1))
    }

    /// Removes the segment's name. Other commands no longer find it, and processes that map it keep
    /// it. Does nothing if the name leads to another file.
    pub fn remove_name(&self) {
        if let Some(path) = self.path.as_ref().filter(|_| self.is_named()) {
            // Fails if another command was faster.
            let _ = std::fs::remove_file(path);
            step("segment name");
        }
    }

    /// The segment's path in `/dev/shm`. `None` for a segment that only the target has (a memfd).
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The segment's file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The segment's size in bytes.
    pub fn size(&self) -> u64 {
        self.map.len() as u64
    }

    /// The header of the segment.
    pub fn header(&self) -> &Header {
        // SAFETY: the map is at least a page long and page-aligned. It lives as long as `self`.
        unsafe { shared::<Header>(self.map.as_ptr()) }
    }

    /// The value `offset` bytes into item `index` of an area, whose items are `stride` bytes apart.
    /// `None` if it is misaligned or outside the area or the map.
    fn item<T: Shared>(&self, area: usize, index: u64, stride: u64, offset: u64) -> Option<&T> {
        let area = self.header().areas.get(area)?;
        if index >= area.capacity() {
            return None;
        }
        let at = area
            .offset()
            .checked_add(index.checked_mul(stride)?)?
            .checked_add(offset)?;
        let end = at.checked_add(size_of::<T>() as u64)?;
        if end > self.size() || at % align_of::<T>() as u64 != 0 {
            return None;
        }
        // SAFETY: the item lies inside the map, which lives as long as `self`, and is aligned.
        Some(unsafe { shared(self.map.as_ptr().add(at as usize)) })
    }

    /// Writes `bytes` at offset `at`, in bytes, of the area with the index `area`. False if the
    /// area has no room or the system no memory.
    ///
    /// # Errors
    /// There is no such area, or writing fails for another reason.
    pub fn write_bytes(&self, area: usize, at: u64, bytes: &[u8]) -> Result<bool, SegmentError> {
        let area = self.header().areas.get(area);
        let area = area.ok_or(SegmentError::Corrupt("areas"))?;
        let end = at.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > area.capacity()) {
            return Ok(false);
        }
        self.write_at(area.offset().saturating_add(at), bytes)
    }

    /// Copies the first `len` bytes of an area to another segment of the same shape. False if
    /// there is no memory.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn copy_area(&self, area: usize, len: u64, to: &Self) -> Result<bool, SegmentError> {
        use std::os::unix::fs::FileExt;
        const AT_ONCE: u64 = 1 << 20;
        let (offset, room) = self.area_bytes(area);
        let (to_offset, to_room) = to.area_bytes(area);
        let len = len.min(room).min(to_room);
        let mut at = 0;
        while at < len {
            let mut bytes = vec![0; (len - at).min(AT_ONCE) as usize];
            let read = self.file.read_exact_at(&mut bytes, offset + at);
            read.map_err(|e| self.io(e))?;
            if !to.write_at(to_offset + at, &bytes)? {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Zeroes an item of an area, so that it can be written through the map. False if the area has
    /// no room or the system no memory.
    fn clear_item<T: Shared>(&self, area: usize, index: u64) -> Result<bool, SegmentError> {
        let stride = size_of::<T>() as u64;
        if self.item::<T>(area, index, stride, 0).is_none() {
            return Ok(false);
        }
        let area = self.header().areas.get(area);
        let start = area.map_or(0, |area| area.offset()) + index * stride;
        self.write_at(start, &vec![0; size_of::<T>()])
    }

    /// Writes by a system call, which returns an error where touching the map would raise SIGBUS.
    /// False if there is no memory.
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<bool, SegmentError> {
        use std::os::unix::fs::FileExt;
        match self.file.write_all_at(bytes, at) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            Err(error) => Err(self.io(error)),
        }
    }

    /// The call node with this index. `None` if the index is outside the area.
    pub fn node(&self, index: u32) -> Option<&layout_of::Node> {
        self.item(
            layout_of::AREA_NODES,
            index.into(),
            size_of::<layout_of::Node>() as u64,
            0,
        )
    }

    /// The thread entry with this index. `None` if the index is outside the area.
    pub fn thread(&self, index: u32) -> Option<&layout_of::ThreadEntry> {
        let stride = size_of::<layout_of::ThreadEntry>() as u64;
        self.item(layout_of::AREA_THREADS, index.into(), stride, 0)
    }

    /// The module entry with this index. `None` if the index is outside the area.
    pub fn module(&self, index: u32) -> Option<&layout_of::ModuleEntry> {
        let stride = size_of::<layout_of::ModuleEntry>() as u64;
        self.item(layout_of::AREA_MODULES, index.into(), stride, 0)
    }

    /// The histogram with this index. `None` if the index is outside the area.
    pub fn histogram(&self, index: u32) -> Option<&layout_of::Histogram> {
        let stride = size_of::<layout_of::Histogram>() as u64;
        self.item(layout_of::AREA_HISTOGRAMS, index.into(), stride, 0)
    }

    /// The head of the record with this index. `None` if the index is outside the area.
    pub fn record(&self, index: u64) -> Option<&RecordHead> {
        let stride = size_of::<Record>() as u64;
        let record: &Record = self.item(layout_of::AREA_RECORDS, index, stride, 0)?;
        Some(&record.head)
    }

    /// Column `number` of the record with this index. `None` if either is out of range.
    pub fn column(&self, index: u64, number: usize) -> Option<&Column> {
        let Some(further) = number.checked_sub(1) else {
            let stride = size_of::<Record>() as u64;
            let record: &Record = self.item(layout_of::AREA_RECORDS, index, stride, 0)?;
            return Some(&record.first);
        };
        let stride = columns_stride(self.header().columns.load(Relaxed) as usize);
        let offset = further.checked_mul(size_of::<Column>())? as u64;
        let fits = offset + size_of::<Column>() as u64 <= stride;
        fits.then(|| self.item(layout_of::AREA_COLUMNS, index, stride, offset))?
    }
}

/// A reference to a value in a map.
///
/// # Safety
/// `at` is aligned for `T`, and `size_of::<T>()` bytes from there on are mapped during `'m`.
unsafe fn shared<'m, T: Shared>(at: *const u8) -> &'m T {
    // SAFETY: as the caller promises; `Shared` allows any bytes, and writes by others.
    unsafe { &*at.cast() }
}

/// True if the folder of segments has at least 4 MiB left, which is more than the beginnings of a
/// segment. With less room, calls would soon be lost that a segment in the target alone has room
/// for.
pub fn has_room() -> bool {
    const ENOUGH: u64 = 4 << 20;
    let stat = nix::sys::statvfs::statvfs(FOLDER);
    stat.is_ok_and(|s| s.blocks_available().saturating_mul(s.fragment_size()) >= ENOUGH)
}

/// Creates the file for the segment of a process. A random suffix is added to its name if a file
/// that cannot be a segment has the usual name.
fn new_file(process: &Process) -> Result<(File, PathBuf), SegmentError> {
    let path = trust::path_for(process, None);
    match make(&path) {
        Ok(file) => return Ok((file, path)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(SegmentError::Io(path, error));
        }
        Err(error) => {
            let there = std::fs::symlink_metadata(&path);
            let owner = trust::owner_of(process);
            if there.is_ok_and(|m| m.nlink() == 1 && trust::is_trusted(&m, owner)) {
                // Another command has just made a segment. The caller must use that one.
                return Err(SegmentError::Io(path, error));
            }
        }
    }
    let path = trust::path_for(process, Some(ipath_target::random::number()));
    let file = make(&path).map_err(|e| SegmentError::Io(path.clone(), e))?;
    Ok((file, path))
}

fn make(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(trust::MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}
