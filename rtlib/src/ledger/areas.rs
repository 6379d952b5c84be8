//! What the ledger keeps in the shared segment: nodes of the tree, records, histograms, threads.

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
    // SAFETY: indexes of nodes come from here, or are one of the roots that the command has made.
    unsafe { item(AREA_NODES, u64::from(index), size_of::<Node>() as u64) }
}

/// Record `index`; its first column follows it.
#[inline(always)]
pub fn record(index: u32) -> &'static RecordHead {
    // SAFETY: indexes of records come from here.
    let record: &Record = unsafe { item(AREA_RECORDS, u64::from(index), RECORD) };
    &record.head
}

/// Bytes of a record.
const RECORD: u64 = size_of::<Record>() as u64;

/// Column `number` of a record, whose schema has as many.
#[inline(always)]
pub fn column(record: &RecordHead, number: usize) -> &Column {
    let head: *const RecordHead = record;
    let Some(further) = number.checked_sub(1) else {
        // SAFETY: heads are in records, which the first column is a part of.
        return unsafe { &(*head.cast::<Record>()).first };
    };
    let records = header() as *const _ as u64 + header().areas[AREA_RECORDS].offset();
    let index = (head as u64 - records) / RECORD;
    // SAFETY: a record with further columns has got them when it was made.
    unsafe {
        let columns: *const Column = item::<Column>(AREA_COLUMNS, index, further_columns());
        &*columns.add(further)
    }
}

/// Where the second column of a record is that has one: half of its address times `factor`, and `base`. Each has its first
/// column after its head, of 64 bytes, and the others have 64 bytes each.
#[repr(C)]
pub struct SecondColumn {
    /// How many columns a record has room for, without the first.
    pub factor: AtomicU64,
    /// What is to be added.
    pub base: AtomicU64,
}

/// See [`SecondColumn`]: known before there is a record that has one.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_second_column: SecondColumn = SecondColumn {
    factor: AtomicU64::new(0),
    base: AtomicU64::new(0),
};

impl SecondColumn {
    fn find(&self) {
        const _: () = assert!(RECORD == 128 && size_of::<Column>() == 64);
        let area = |area: usize| header() as *const _ as u64 + header().areas[area].offset();
        let factor = further_columns() / size_of::<Column>() as u64;
        let base = area(AREA_COLUMNS).wrapping_sub(area(AREA_RECORDS) / 2 * factor);
        self.factor.store(factor, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
    }
}

/// Bytes that each record has in the area of further columns.
#[inline(always)]
fn further_columns() -> u64 {
    columns_stride(header().columns.load(Ordering::Relaxed) as usize)
}

/// Thread entry `index`.
#[inline(always)]
pub fn thread(index: u32) -> &'static ThreadEntry {
    // SAFETY: indexes of threads come from here.
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
    // SAFETY: indexes of histograms come from here.
    unsafe {
        item(
            AREA_HISTOGRAMS,
            u64::from(index),
            size_of::<Histogram>() as u64,
        )
    }
}

/// What a node or a record is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// A path of its own.
    Path,
    /// What the further paths of a function share, for which some bytes are kept (`SPARE`).
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

/// The index of a new node.
///
/// # Errors
/// The area or the memory that backs it is used up.
pub fn take_node(what: For) -> Result<u32, Shortage> {
    let (used, stride) = (&header().nodes_used, size_of::<Node>() as u64);
    take(AREA_NODES, used, stride, what.spare(), |_| Ok(()))
}

/// The index of a new record of so many columns, where `prepare` sees to what else as many records need.
///
/// # Errors
/// As for [`take_node`], or what `prepare` returns.
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

/// The index of a new thread entry.
///
/// # Errors
/// As for [`take_node`].
pub fn take_thread() -> Result<u32, Shortage> {
    let (used, stride) = (&header().threads_used, size_of::<ThreadEntry>() as u64);
    take(AREA_THREADS, used, stride, 0, |_| Ok(()))
}

/// The index of a new histogram.
///
/// # Errors
/// As for [`take_node`].
pub fn take_histogram() -> Result<u32, Shortage> {
    let (used, stride) = (&header().histograms_used, size_of::<Histogram>() as u64);
    take(AREA_HISTOGRAMS, used, stride, 0, |_| Ok(()))
}
