//! The shared segment as the target sees it.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::rule::Rule;
use abi::segment::{
    AREA_HISTOGRAMS, AREA_MODULES, AREA_NODES, AREA_RECORDS, AREA_TABLES, AREA_THREADS, AREAS,
    CHUNK, Header, Histogram, ModuleEntry, Node, RecordHead, TABLE_OF_MAPS, TABLE_OF_RULES,
    TableHead, TableRow, ThreadEntry,
};

use crate::state::{SLOTS, ipath_parameters};
use crate::sys;

/// Bytes of each area that are known to be backed by memory, so that a write cannot raise SIGBUS.
static POPULATED: [AtomicU64; AREAS] = [const { AtomicU64::new(0) }; AREAS];

#[inline(always)]
fn base() -> u64 {
    ipath_parameters.segment.load(Ordering::Relaxed)
}

/// Whether there is a segment: none in the crate's own tests.
pub fn is_mapped() -> bool {
    base() != 0
}

/// The header.
#[inline(always)]
pub fn header() -> &'static Header {
    // SAFETY: the command maps the segment before the first probe fires and unmaps it only when
    // no thread is in the runtime; its first page is a header of all-atomic fields.
    unsafe { &*(base() as *const Header) }
}

#[inline(always)]
fn item<T>(area: usize, index: u64, stride: u64) -> &'static T {
    let offset = header().areas[area].offset();
    // SAFETY: indexes come from `take`, which bounds them by the area's capacity, or were written
    // by the runtime itself; items consist of atomics and are aligned to 8 as areas are.
    unsafe { &*((base() + offset + index * stride) as *const T) }
}

/// Node `index` of the calling-context tree.
#[inline(always)]
pub fn node(index: u32) -> &'static Node {
    item(AREA_NODES, u64::from(index), size_of::<Node>() as u64)
}

/// Record `index`; its timers follow it.
#[inline(always)]
pub fn record(index: u32) -> &'static RecordHead {
    item(
        AREA_RECORDS,
        u64::from(index),
        header().record_stride.load(Ordering::Relaxed),
    )
}

/// Thread entry `index`.
#[inline(always)]
pub fn thread(index: u32) -> &'static ThreadEntry {
    item(
        AREA_THREADS,
        u64::from(index),
        size_of::<ThreadEntry>() as u64,
    )
}

/// Histogram `index` of the pool.
#[inline(always)]
pub fn histogram(index: u32) -> &'static Histogram {
    item(
        AREA_HISTOGRAMS,
        u64::from(index),
        size_of::<Histogram>() as u64,
    )
}

/// Module entry `index`.
pub fn module(index: u32) -> &'static ModuleEntry {
    item(
        AREA_MODULES,
        u64::from(index),
        size_of::<ModuleEntry>() as u64,
    )
}

/// Bytes of unwind tables that the command has published.
pub fn tables_used() -> u64 {
    if !is_mapped() {
        return 0;
    }
    header().tables_used.load(Ordering::Acquire)
}

/// The unwind tables that the command has published.
pub fn tables() -> impl Iterator<Item = (&'static TableHead, &'static [TableRow])> {
    let used = tables_used();
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= used {
            return None;
        }
        let head: &TableHead = item(AREA_TABLES, at, 1);
        let count = head.rows.load(Ordering::Relaxed) as usize;
        let first: &TableRow = item(AREA_TABLES, at + size_of::<TableHead>() as u64, 1);
        // SAFETY: the command has written the rows before it counted their bytes as used.
        let rows = unsafe { core::slice::from_raw_parts(first, count) };
        at += (size_of::<TableHead>() + size_of_val(rows)) as u64;
        Some((head, rows))
    })
}

/// The text of the maps that the command has published last.
pub fn published_maps() -> Option<&'static [u8]> {
    let is_of_maps =
        |(head, _): &(&TableHead, &[TableRow])| head.kind.load(Ordering::Relaxed) == TABLE_OF_MAPS;
    let (_, rows) = tables().filter(is_of_maps).last()?;
    // SAFETY: the command has written the rows, and does not change them any more.
    Some(unsafe { core::slice::from_raw_parts(rows.as_ptr().cast(), size_of_val(rows)) })
}

/// The rule that the command has published for a return address.
pub fn rule_of(pc: u64) -> Option<Rule> {
    let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
    tables().find_map(|(head, rows)| {
        if of(&head.kind) != TABLE_OF_RULES || pc <= of(&head.start) || of(&head.end) < pc {
            return None;
        }
        let found = rows.binary_search_by_key(&pc, |row| of(&row.start)).ok()?;
        Some(Rule::decode(of(&rows.get(found)?.value)))
    })
}

/// What a node or a record is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// A path of its own.
    Path,
    /// What the further paths of a function share, for which [`SPARE`] is kept.
    Overflow,
}

/// Bytes of nodes and of records that are kept for paths that calls beyond all room share.
const SPARE: u64 = CHUNK;

impl For {
    fn spare(self) -> u64 {
        match self {
            Self::Path => SPARE,
            Self::Overflow => 0,
        }
    }
}

/// The index of a new node; `None` where the area or the memory behind it is used up.
pub fn take_node(what: For) -> Option<u32> {
    let stride = size_of::<Node>() as u64;
    take(
        AREA_NODES,
        &header().nodes_used,
        stride,
        what.spare(),
        |_| Some(()),
    )
}

/// The index of a new record, for which there is a slot.
pub fn take_record(what: For) -> Option<u32> {
    let stride = header().record_stride.load(Ordering::Relaxed);
    let used = &header().records_used;
    take(AREA_RECORDS, used, stride, what.spare(), |end| {
        SLOTS.reserve(end / stride)
    })
}

/// The index of a new thread entry.
pub fn take_thread() -> Option<u32> {
    let stride = size_of::<ThreadEntry>() as u64;
    take(
        AREA_THREADS,
        &header().threads_used,
        stride,
        0,
        |_| Some(()),
    )
}

/// The index of a new histogram.
pub fn take_histogram() -> Option<u32> {
    let stride = size_of::<Histogram>() as u64;
    take(
        AREA_HISTOGRAMS,
        &header().histograms_used,
        stride,
        0,
        |_| Some(()),
    )
}

/// The index of a new module entry.
pub fn take_module() -> Option<u32> {
    let stride = size_of::<ModuleEntry>() as u64;
    take(
        AREA_MODULES,
        &header().modules_used,
        stride,
        0,
        |_| Some(()),
    )
}

/// The next item, with `spare` bytes behind it that are backed by memory too, and what `prepare` gets
/// ready up to the byte where those end. An item counts as used only then: the command reads all that do, and reading
/// a page that cannot be had is SIGBUS as well.
fn take(
    area: usize,
    used: &AtomicU64,
    stride: u64,
    spare: u64,
    prepare: impl Fn(u64) -> Option<()>,
) -> Option<u32> {
    let bytes = header().areas[area].capacity() * stride;
    let mut index = used.load(Ordering::Relaxed);
    loop {
        let end = (index + 1) * stride + spare;
        if end > bytes {
            return None;
        }
        populate(area, end)?;
        prepare(end)?;
        match used.compare_exchange_weak(index, index + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return u32::try_from(index).ok(),
            Err(seen) => index = seen,
        }
    }
}

/// Sees to it that the first `bytes` of an area are backed by memory.
fn populate(area: usize, bytes: u64) -> Option<()> {
    let mark = &POPULATED[area];
    let from = mark.load(Ordering::Acquire);
    if bytes <= from {
        return Some(());
    }
    if !sys::may_call() {
        let populated = ipath_parameters.populated[area].load(Ordering::Relaxed);
        return (bytes <= populated).then_some(());
    }
    let to = bytes.next_multiple_of(CHUNK);
    let start = base() + header().areas[area].offset();
    if !sys::populate(start + from, to - from) {
        return None;
    }
    mark.fetch_max(to, Ordering::Release);
    Some(())
}
