//! Sessions in which the runtime makes no system call. Under a seccomp filter a call that the filter forbids could
//! end the program. Without a /proc in its root the runtime could not read what is mapped. A user may also say that
//! a filter will come, which the runtime cannot see.
//!
//! Everything such a runtime needs is laid out when the session is made: memory for its threads after the image,
//! and memory for the areas of the segment that it writes. The process's maps are published in the segment whenever
//! functions are added.

use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use abi::image::{Parameters, RESERVE_PER_THREAD, RESERVE_SHARED, SYMBOL_PARAMETERS};
use abi::segment::{
    AREA_COLUMNS, AREA_HISTOGRAMS, AREA_MODULES, AREA_NODES, AREA_RECORDS, AREA_TABLES,
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

/// Threads that may come, beside those there are.
const MORE_THREADS: u64 = 64;

/// Bytes of each area that have memory from the beginning: more than is there when it is full.
const POPULATED: [(usize, u64); 5] = [
    (AREA_THREADS, u64::MAX),
    (AREA_MODULES, 256 << 10),
    (AREA_NODES, 4 << 20),
    (AREA_RECORDS, 8 << 20),
    (AREA_HISTOGRAMS, 4 << 20),
];

/// The same of the columns of records but the first, where there are any.
const COLUMNS: u64 = 16 << 20;

/// The least memory of an area, if the area is that large.
const LEAST_OF_AN_AREA: u64 = 256 << 10;

/// The memory laid out for the areas is divided by 2 to this power.
fn scaled(process: &Process) -> u32 {
    Room::scaled(process, (4 << 20) + (8 << 20) + (4 << 20) + COLUMNS)
}

/// True if the runtime is to make no system call in a process; an error where it cannot run there.
pub(super) fn is_needed(process: &Process) -> Result<bool, SessionError> {
    let tids = process
        .list_tids()
        .map_err(|e| SessionError::Unknown(ipath_base::error::io_text(&e)))?;
    let mut modes: Vec<String> = Vec::new();
    for tid in over(THREADS, tids) {
        match process.thread_status(tid, "Seccomp") {
            Some(mode) => modes.push(mode),
            // It has ended since, or there is another reason, and a filter may be there.
            None if process.has_thread(tid) => modes.push("unknown".to_owned()),
            None => {}
        }
    }
    if modes.iter().any(|mode| mode == "1") {
        let why =
            "a thread of it is in seccomp's strict mode, which forbids the time-stamp counter";
        return Err(SessionError::Held(why.to_owned()));
    }
    // By its number there: `self` is nobody where we are not in its pid namespace.
    let own_maps = format!(
        "/proc/{}/root/proc/{}/maps",
        process.entry(),
        process.inner_pid()
    );
    let has_proc = Path::new(&own_maps).symlink_metadata().is_ok();
    Ok(!has_proc || modes.iter().any(|mode| mode != "0"))
}

/// Bytes after the image that are for its threads.
pub(super) fn reserve(process: &Process) -> u64 {
    let threads = process.tids().map_or(0, |tids| tids.len() as u64);
    RESERVE_SHARED + (threads + MORE_THREADS) * RESERVE_PER_THREAD
}

/// Populates the areas that the runtime writes, and stores their sizes in the parameters. The sizes
/// are smaller if the memory cgroup of the process has little left.
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

/// Has memory for the first bytes of an area; how many those are.
fn populate_area(segment: &Segment, index: usize, wanted: u64) -> Result<u64, SessionError> {
    let (offset, len) = segment.area_bytes(index);
    let len = len.min(wanted);
    let range = [offset, len].map(|n| n as libc::off_t);
    // SAFETY: the descriptor is open. Where there is no memory this is an error.
    if unsafe { libc::fallocate(segment.file().as_raw_fd(), 0, range[0], range[1]) } != 0 {
        return Err(segment.io(std::io::Error::last_os_error()).into());
    }
    Ok(len)
}

impl View<'_> {
    /// Tells a runtime what is mapped by now that may not look, or cannot: a program can go where there is no /proc (chroot(2)).
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

/// Has memory for the further columns of records once something is measured that has some, and tells the runtime.
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

/// The memory for its threads, after the image's own.
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
