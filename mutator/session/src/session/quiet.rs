//! Sessions in which the runtime makes no system call. A seccomp filter could end the program for a
//! call that it forbids. Without a /proc in its root, the runtime could not read the maps. A user
//! may also announce a later filter, which ipath cannot detect.
//!
//! Everything such a runtime needs is laid out when the session is made: memory for its threads
//! after the image, and memory for the areas of the segment that it writes. The process's maps are
//! published in the segment whenever functions are added.

use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use abi::image::{Parameters, RESERVE_PER_THREAD, RESERVE_SHARED, SYMBOL_PARAMETERS};
use abi::segment::{
    AREA_CALLS, AREA_COLUMNS, AREA_HISTOGRAMS, AREA_MODULES, AREA_NODES, AREA_RECORDS, AREA_TABLES,
    AREA_THREADS, TABLE_OF_MAPS, TableHead, TableRow,
};

use super::SessionError;
use super::locked::Locked;
use super::memory::Room;
use super::view::View;
use crate::segment::{Document, SchemaDoc, Segment};
use ipath_profile::clock;
use ipath_target::process::{Extent, Process};
use ipath_target::progress::{THREADS, over};

/// Number of additional threads to provide for.
const MORE_THREADS: u64 = 64;

/// Bytes of each area that are populated at first. `u64::MAX` stands for the whole area.
const POPULATED: [(usize, u64); 6] = [
    (AREA_THREADS, u64::MAX),
    (AREA_MODULES, 256 << 10),
    (AREA_NODES, 4 << 20),
    (AREA_RECORDS, 8 << 20),
    (AREA_HISTOGRAMS, 4 << 20),
    (AREA_CALLS, 8 << 20),
];

/// Bytes of the further columns of records that are populated, if there are any.
const COLUMNS: u64 = 16 << 20;

/// The least memory of an area, if the area is that large.
const LEAST_OF_AN_AREA: u64 = 256 << 10;

/// The shift by which the populated sizes are reduced: each is divided by 2 to this power.
fn scaled(process: &Process) -> u32 {
    Room::scaled(process, (4 << 20) + (8 << 20) + (4 << 20) + COLUMNS)
}

/// True if the runtime must not make system calls in a process.
///
/// # Errors
/// The runtime cannot run there, or the threads cannot be listed.
pub(super) fn is_needed(process: &Process) -> Result<bool, SessionError> {
    let tids = process
        .list_tids()
        .map_err(|e| SessionError::Unknown(ipath_base::error::io_text(&e)))?;
    let mut modes: Vec<String> = Vec::new();
    for tid in over(THREADS, tids) {
        match process.thread_status(tid, "Seccomp") {
            Some(mode) => modes.push(mode),
            // It has ended since, or the status cannot be read and there may be a filter.
            None if process.has_thread(tid) => modes.push("unknown".to_owned()),
            None => {}
        }
    }
    if modes.iter().any(|mode| mode == "1") {
        let why =
            "a thread of it is in seccomp's strict mode, which forbids the time-stamp counter";
        return Err(SessionError::Held(why.to_owned()));
    }
    // By its pid in its own namespace: `self` resolves to nothing if ipath is not in that
    // namespace.
    let own_maps = format!(
        "/proc/{}/root/proc/{}/maps",
        process.entry(),
        process.inner_pid()
    );
    let has_proc = Path::new(&own_maps).symlink_metadata().is_ok();
    Ok(!has_proc || modes.iter().any(|mode| mode != "0"))
}

/// The bytes to reserve after the image for the runtime's data about the threads of the process:
/// those of now, and [`MORE_THREADS`] new ones.
pub(super) fn reserve(process: &Process) -> u64 {
    let threads = process.tids().map_or(0, |tids| tids.len() as u64);
    RESERVE_SHARED + (threads + MORE_THREADS) * RESERVE_PER_THREAD
}

/// Populates the areas that the runtime writes, and stores their sizes in the parameters. The sizes
/// are smaller if the memory cgroup of the process has little left. Fails if there is no memory for
/// them.
pub(super) fn populate(
    process: &Process,
    segment: &Segment,
    parameters: &Parameters,
) -> Result<(), SessionError> {
    let shift = scaled(process);
    for (index, wanted) in POPULATED {
        let wanted = match index {
            AREA_THREADS => wanted,
            _ => (wanted >> shift).max(LEAST_OF_AN_AREA),
        };
        let len = populate_area(segment, index, wanted)?;
        if let Some(populated) = parameters.populated.get(index) {
            populated.store(len, Relaxed);
        }
        segment.header().memory_taken.fetch_add(len, Relaxed);
    }
    Ok(())
}

/// Allocates memory for the first `wanted` bytes of an area. Returns the number of allocated bytes.
fn populate_area(segment: &Segment, index: usize, wanted: u64) -> Result<u64, SessionError> {
    let (offset, len) = segment.area_bytes(index);
    let len = len.min(wanted);
    if len == 0 {
        return Ok(0);
    }
    let range = [offset, len].map(|n| n as libc::off_t);
    // SAFETY: the descriptor is open, and the call accesses no memory of this process. Without free
    // memory it returns an error.
    if unsafe { libc::fallocate(segment.file().as_raw_fd(), 0, range[0], range[1]) } != 0 {
        return Err(segment.io(std::io::Error::last_os_error()).into());
    }
    Ok(len)
}

impl View<'_> {
    /// Publishes the current maps for a runtime that must not or cannot read them. A program can
    /// move to a root without /proc (chroot(2)). Fails if the maps cannot be read, or if the
    /// segment has no room for them.
    pub(super) fn publish_maps(&self) -> Result<(), SessionError> {
        let seen = clock::tsc();
        let mut text = self.space.maps_text()?;
        text.resize(text.len().next_multiple_of(size_of::<TableRow>()), b'\n');
        let rows = (text.len() / size_of::<TableRow>()) as u64;
        let head = [TABLE_OF_MAPS, 0, 0, 0, 0, rows, seen];
        const _: () = assert!(size_of::<TableHead>() == 7 * size_of::<u64>());
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(text);
        let used = &self.segment.header().tables_used;
        let at = used.load(Acquire);
        if self.segment.write_bytes(AREA_TABLES, at, &bytes)? {
            used.store(at + bytes.len() as u64, Release)
        } else {
            return Err(self.segment.full().into());
        }
        Ok(())
    }
}

/// Populates the further columns of records once a schema has several columns. Stores their size in
/// the runtime's parameters. Does nothing if the runtime may make system calls. Fails if there is
/// no memory for them.
pub(super) fn populate_columns(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let has_further = |schema: &SchemaDoc| schema.columns.len() > 1;
    if !locked.document.quiet || !locked.document.schemas.iter().any(has_further) {
        return Ok(());
    }
    let len = (COLUMNS >> scaled(&locked.process)).max(LEAST_OF_AN_AREA);
    let len = populate_area(&locked.segment, AREA_COLUMNS, len)?;
    let at = locked.symbol(SYMBOL_PARAMETERS)?;
    let at = at.plus((offset_of!(Parameters, populated) + 8 * AREA_COLUMNS) as u64);
    locked.write_own(&[(at, len.to_le_bytes().to_vec())])
}

/// The memory for the runtime's threads, after the image's own. `image` is the size of the image in
/// bytes.
pub(super) fn reserve_after(document: &Document, image: u64) -> Extent {
    let Extent { start, len } = document.image;
    Extent {
        start: start.plus(image),
        len: len - image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::Pid;
    use std::fs;

    #[test]
    fn an_ordinary_process_needs_nothing_of_it() {
        let own = Process::find(Pid(std::process::id() as i32)).expect("we run");
        let filtered = fs::read_to_string("/proc/self/status").expect("there");
        let filtered = !filtered.contains("Seccomp:\t0");
        assert_eq!(is_needed(&own).expect("not strict"), filtered);
        assert!(reserve(&own) > RESERVE_SHARED + RESERVE_PER_THREAD);
    }
}
