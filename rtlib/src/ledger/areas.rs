//! The ledger's data in the shared segment: nodes of the tree, records, histograms, threads.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{
    AREA_COLUMNS, AREA_HISTOGRAMS, AREA_NODES, AREA_RECORDS, AREA_THREADS, CHUNK, Column,
    Histogram, Node, Record, RecordHead, ThreadEntry, columns_stride,
};
use abi::shortage::Shortage;

use crate::os::shared::{header, item, populate, take};

/// Node `index` of the calling-context tree.
#[inline(always)]
pub fn node(index: u32) -> &'static Node {
    // SAFETY: node indexes come from this module, or are roots created by the command.
    unsafe { item(AREA_NODES, u64::from(index), size_of::<Node>() as u64) }
}

/// The head of record `index`; the record's first column follows it.
#[inline(always)]
pub fn record(index: u32) -> &'static RecordHead {
    // SAFETY: record indexes come from this module.
    let record: &Record = unsafe { item(AREA_RECORDS, u64::from(index), RECORD) };
    &record.head
}

/// The index of a record.
#[inline(always)]
pub fn number_of(record: &RecordHead) -> u32 {
    let records = header() as *const _ as u64 + header().areas[AREA_RECORDS].offset();
    let head: *const RecordHead = record;
    ((head as u64 - records) / RECORD) as u32
}

/// Bytes of a record in the segment: its head and its first column.
const RECORD: u64 = size_of::<Record>() as u64;

/// Column `number` of a record. The record's schema has at least as many columns.
#[inline(always)]
pub fn column(record: &RecordHead, number: usize) -> &Column {
    let head: *const RecordHead = record;
    let Some(further) = number.checked_sub(1) else {
        // SAFETY: heads are in records, which include the first column.
        return unsafe { &(*head.cast::<Record>()).first };
    };
    let index = number_of(record);
    // SAFETY: a record gets its further columns when it is created.
    unsafe {
        let columns: *const Column = item::<Column>(AREA_COLUMNS, index.into(), further_columns());
        &*columns.add(further)
    }
}

/// The location of the second column of a record: `address / 2 * factor + base`, from the record's
/// address. A record is a head and its first column, 64 bytes each. The other columns have 64 bytes
/// each, too.
#[repr(C)]
pub struct SecondColumn {
    /// Columns per record, without the first one.
    pub factor: AtomicU64,
    /// The constant term.
    pub base: AtomicU64,
}

/// The location of second columns. It is set before a record with two columns exists.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_second_column: SecondColumn = SecondColumn {
    factor: AtomicU64::new(0),
    base: AtomicU64::new(0),
};

impl SecondColumn {
    /// Stores the location, from the areas of the segment.
    fn find(&self) {
        const _: () = assert!(RECORD == 128 && size_of::<Column>() == 64);
        let area = |area: usize| header() as *const _ as u64 + header().areas[area].offset();
        let factor = further_columns() / size_of::<Column>() as u64;
        let base = area(AREA_COLUMNS).wrapping_sub(area(AREA_RECORDS) / 2 * factor);
        self.factor.store(factor, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
    }
}

/// Bytes per record in the area of columns other than the first.
#[inline(always)]
fn further_columns() -> u64 {
    columns_stride(header().columns.load(Ordering::Relaxed) as usize)
}

/// Thread entry `index`.
#[inline(always)]
pub fn thread(index: u32) -> &'static ThreadEntry {
    // SAFETY: thread indexes come from this module.
    unsafe {
        item(
            AREA_THREADS,
            u64::from(index),
            size_of::<ThreadEntry>() as u64,
        )
    }
}

/// Histogram `index` of the pool.
#[inline(always)]
pub fn histogram(index: u32) -> &'static Histogram {
    // SAFETY: histogram indexes come from this module.
    unsafe {
        item(
            AREA_HISTOGRAMS,
            u64::from(index),
            size_of::<Histogram>() as u64,
        )
    }
}

/// The purpose of a node or record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// A path.
    Path,
    /// The path shared by further paths of a function. Some bytes are reserved for it (`SPARE`).
    Overflow,
}

/// Bytes of nodes and of records reserved for paths shared by calls beyond the capacity.
const SPARE: u64 = CHUNK;

impl For {
    /// Bytes that must stay free in the area for other purposes.
    fn spare(self) -> u64 {
        match self {
            Self::Path => SPARE,
            Self::Overflow => 0,
        }
    }
}

/// Allocates a node and returns its index.
///
/// # Errors
/// The area or its memory is used up.
pub fn take_node(what: For) -> Result<u32, Shortage> {
    let (used, stride) = (&header().nodes_used, size_of::<Node>() as u64);
    take(AREA_NODES, used, stride, what.spare(), |_| Ok(()))
}

/// Allocates a record with `columns` columns and returns its index. `prepare` allocates everything
/// else for that number of records.
///
/// # Errors
/// As for [`take_node`], the error of `prepare`, or [`Shortage::Room`] if the segment's records
/// have fewer columns.
pub fn take_record(
    what: For,
    columns: usize,
    prepare: impl Fn(u64) -> Result<(), Shortage>,
) -> Result<u32, Shortage> {
    if columns > header().columns.load(Ordering::Relaxed) as usize {
        return Err(Shortage::Room);
    }
    let used = &header().records_used;
    take(AREA_RECORDS, used, RECORD, what.spare(), |end| {
        let count = end / RECORD;
        if columns > 1 {
            ipath_second_column.find();
            populate(AREA_COLUMNS, count * further_columns())?;
        }
        prepare(count)
    })
}

/// Allocates a thread entry and returns its index.
///
/// # Errors
/// As for [`take_node`].
pub fn take_thread() -> Result<u32, Shortage> {
    let (used, stride) = (&header().threads_used, size_of::<ThreadEntry>() as u64);
    take(AREA_THREADS, used, stride, 0, |_| Ok(()))
}

/// Allocates a histogram and returns its index.
///
/// # Errors
/// As for [`take_node`].
pub fn take_histogram() -> Result<u32, Shortage> {
    let (used, stride) = (&header().histograms_used, size_of::<Histogram>() as u64);
    take(AREA_HISTOGRAMS, used, stride, 0, |_| Ok(()))
}
