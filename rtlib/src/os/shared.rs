//! The segment that the runtime shares with the command.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{
    AREA_TABLES, AREAS, CHUNK, Header, NO_LIMIT, TABLE_OF_MAPS, TableHead, TableRow,
};
use abi::shortage::Shortage;

use super::parameters::ipath_parameters;
use super::sys;

/// Bytes of each area that are known to be backed by memory, so that a write cannot raise SIGBUS.
static POPULATED: [AtomicU64; AREAS] = [const { AtomicU64::new(0) }; AREAS];

/// The address of the segment; 0 if there is none.
#[inline(always)]
fn base() -> u64 {
    ipath_parameters.segment.load(Ordering::Relaxed)
}

/// True if there is a segment. The crate's own tests have none.
pub fn is_mapped() -> bool {
    base() != 0
}

/// The header of the segment.
#[inline(always)]
pub fn header() -> &'static Header {
    // SAFETY: the command maps the segment before the first probe fires and unmaps it only when
    // no thread is in the runtime; its first page is a header of all-atomic fields.
    unsafe { &*(base() as *const Header) }
}

/// True if paths are kept apart by phase.
#[inline(always)]
pub fn keeps_phases() -> bool {
    header().phases_kept.load(Ordering::Relaxed) != 0
}

/// Item `index` of an area whose items are `stride` bytes apart.
///
/// # Safety
/// The area's items have this type, which consists of atomics and is aligned to 8 like the areas.
/// The index was returned by [`take`], which checks it against the area's capacity.
#[inline(always)]
pub unsafe fn item<T>(area: usize, index: u64, stride: u64) -> &'static T {
    let offset = header().areas[area].offset();
    // SAFETY: guaranteed by the caller.
    unsafe { &*((base() + offset + index * stride) as *const T) }
}

/// Bytes of unwind tables that the command has published.
pub fn tables_used() -> u64 {
    if !is_mapped() {
        return 0;
    }
    header().tables_used.load(Ordering::Acquire)
}

/// The unwind tables that the command has published, the oldest first.
pub fn tables() -> impl Iterator<Item = (&'static TableHead, &'static [TableRow])> {
    tables_from(0)
}

/// The unwind tables that the command has published, in order, without the first `at` bytes.
pub fn tables_from(mut at: u64) -> impl Iterator<Item = (&'static TableHead, &'static [TableRow])> {
    let used = tables_used();
    core::iter::from_fn(move || {
        if at >= used {
            return None;
        }
        // SAFETY: the command has written heads and rows before it counted their bytes as used.
        let (head, rows): (&TableHead, &[TableRow]) = unsafe {
            let head: &TableHead = item(AREA_TABLES, at, 1);
            let count = head.rows.load(Ordering::Relaxed) as usize;
            let first: &TableRow = item(AREA_TABLES, at + size_of::<TableHead>() as u64, 1);
            (head, core::slice::from_raw_parts(first, count))
        };
        at += (size_of::<TableHead>() + size_of_val(rows)) as u64;
        Some((head, rows))
    })
}

/// The latest table of the process's maps that the command has published, if any.
fn table_of_maps() -> Option<(&'static TableHead, &'static [TableRow])> {
    let is_of_maps =
        |(head, _): &(&TableHead, &[TableRow])| head.kind.load(Ordering::Relaxed) == TABLE_OF_MAPS;
    tables().filter(is_of_maps).last()
}

/// The text of the maps that the command last published, in the format of /proc/PID/maps; `None` if
/// there are none.
pub fn published_maps() -> Option<&'static [u8]> {
    let (_, rows) = table_of_maps()?;
    // SAFETY: the command has written the rows, and does not change them any more.
    Some(unsafe { core::slice::from_raw_parts(rows.as_ptr().cast(), size_of_val(rows)) })
}

/// The time-stamp counter when the command read the maps that it last published; 0 if there are
/// none.
pub fn maps_seen() -> u64 {
    table_of_maps().map_or(0, |(head, _)| head.seen_tsc.load(Ordering::Relaxed))
}

/// Allocates the next item of an area and returns its index. `spare` bytes after it are populated
/// as well, and `prepare` is called with the byte at which they end. The item counts as used only
/// after that: the command reads all used items, and reading a page without memory raises SIGBUS,
/// too.
///
/// # Errors
/// There is no room, no memory, or `prepare` has failed.
pub fn take(
    area: usize,
    used: &AtomicU64,
    stride: u64,
    spare: u64,
    prepare: impl Fn(u64) -> Result<(), Shortage>,
) -> Result<u32, Shortage> {
    take_run((area, used), (stride, 1), spare, prepare)
}

/// Allocates this number of adjacent items of an area, as [`take`] allocates one, and returns the
/// index of the first one.
///
/// # Errors
/// There is no room or no memory.
pub fn take_several(
    area: usize,
    used: &AtomicU64,
    stride: u64,
    items: u64,
) -> Result<u32, Shortage> {
    take_run((area, used), (stride, items), 0, |_| Ok(()))
}

/// [`take`] for several adjacent items: their size and their number.
#[inline(always)]
fn take_run(
    (area, used): (usize, &AtomicU64),
    (stride, items): (u64, u64),
    spare: u64,
    prepare: impl Fn(u64) -> Result<(), Shortage>,
) -> Result<u32, Shortage> {
    let bytes = header().areas[area].capacity() * stride;
    let mut index = used.load(Ordering::Relaxed);
    loop {
        let end = (index + items) * stride + spare;
        if end > bytes {
            return Err(Shortage::Room);
        }
        populate(area, end)?;
        prepare(end)?;
        match used.compare_exchange_weak(index, index + items, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => return u32::try_from(index).map_err(|_| Shortage::Room),
            Err(seen) => index = seen,
        }
    }
}

/// Allocates the next item of an area that is a ring buffer and returns its number. The item's
/// index is its number modulo the capacity. `None` while all items are in use, that is, not yet
/// included in `done`, or if there is no memory.
pub fn take_turn(area: usize, used: &AtomicU64, done: &AtomicU64, stride: u64) -> Option<u64> {
    let capacity = header().areas[area].capacity();
    let mut number = used.load(Ordering::Relaxed);
    loop {
        if number.wrapping_sub(done.load(Ordering::Acquire)) >= capacity {
            return None;
        }
        populate(area, (number % capacity + 1) * stride).ok()?;
        match used.compare_exchange_weak(number, number + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(number),
            Err(seen) => number = seen,
        }
    }
}

/// Bytes from an area's start to the next area, or to the segment's end.
fn end_of(area: usize) -> u64 {
    let header = header();
    let next = match header.areas.get(area + 1) {
        Some(next) => next.offset(),
        None => header.size.load(Ordering::Relaxed),
    };
    next.saturating_sub(header.areas[area].offset())
}

/// Ensures that the first `bytes` of an area are backed by memory.
///
/// # Errors
/// There is no memory, or the bound of the runtime's memory is exceeded ([`is_bounded`]).
pub fn populate(area: usize, bytes: u64) -> Result<(), Shortage> {
    let mark = &POPULATED[area];
    let from = mark.load(Ordering::Acquire);
    if bytes <= from {
        return Ok(());
    }
    if !sys::may_call() {
        let populated = ipath_parameters.populated[area].load(Ordering::Relaxed);
        return if bytes <= populated {
            Ok(())
        } else {
            Err(Shortage::Reserve)
        };
    }
    // A forked process may end after a few calls, so it starts with less.
    let step = if from == 0 { CHUNK / 4 } else { CHUNK };
    // There is no mapping after the last area.
    let to = bytes.next_multiple_of(step).min(end_of(area)).max(bytes);
    let start = base() + header().areas[area].offset();
    // If two threads populate the same range, it is counted twice. Detecting this would need more
    // of the application's stack.
    let (at, len) = (start + from, to - from);
    take_of(header(), len)?;
    if !sys::populate(at, len) {
        header().memory_taken.fetch_sub(len, Ordering::Relaxed);
        return Err(Shortage::Shared);
    }
    mark.fetch_max(to, Ordering::Release);
    Ok(())
}

/// True if the runtime's memory is bounded by the memory left in the process's cgroup.
pub fn is_bounded() -> bool {
    is_mapped() && header().memory_limit.load(Ordering::Relaxed) != NO_LIMIT
}

/// Counts `bytes` against the bound of the runtime's memory ([`is_bounded`]), before they are
/// mapped or populated.
///
/// # Errors
/// They exceed the bound: the kernel might kill the process.
pub fn take_memory(bytes: u64) -> Result<(), Shortage> {
    if is_mapped() {
        take_of(header(), bytes)
    } else {
        Ok(())
    }
}

/// Counts `bytes` as [`take_memory`] does, in this header.
#[inline(always)]
fn take_of(header: &Header, bytes: u64) -> Result<(), Shortage> {
    let before = header.memory_taken.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) <= header.memory_limit.load(Ordering::Relaxed) {
        return Ok(());
    }
    header.memory_taken.fetch_sub(bytes, Ordering::Relaxed);
    header.memory_refused.store(1, Ordering::Relaxed);
    Err(Shortage::Group)
}

/// Notes the reason why a call is on an overflow path.
pub fn note_overflow(shortage: Shortage) {
    if is_mapped() {
        note(&header().overflow_by, shortage);
    }
}

/// Notes the reason why a call is missed.
pub fn note_missed(shortage: Shortage) {
    note(&header().missed_by, shortage);
}

fn note(bits: &AtomicU64, shortage: Shortage) {
    if bits.load(Ordering::Relaxed) & shortage.bit() == 0 {
        bits.fetch_or(shortage.bit(), Ordering::Relaxed);
    }
}

/// Gives back bytes that [`take_memory`] has counted.
pub fn give_back_memory(bytes: u64) {
    if is_mapped() {
        header().memory_taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}
