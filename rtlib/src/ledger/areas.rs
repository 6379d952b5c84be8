//! What the ledger keeps in the shared segment: nodes of the tree, records, histograms, threads.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use abi::segment::{
    AREA_HISTOGRAMS, AREA_NODES, AREA_RECORDS, AREA_THREADS, CHUNK, Histogram, Node, RecordHead,
    ThreadEntry,
};

use crate::os::shared::{header, item, take};

/// Node `index` of the calling-context tree.
#[inline(always)]
pub fn node(index: u32) -> &'static Node {
    // SAFETY: indexes of nodes come from here, or are one of the roots that the command has made.
    unsafe { item(AREA_NODES, u64::from(index), size_of::<Node>() as u64) }
}

/// Record `index`; its timers follow it.
#[inline(always)]
pub fn record(index: u32) -> &'static RecordHead {
    let stride = header().record_stride.load(Ordering::Relaxed);
    // SAFETY: indexes of records come from here.
    unsafe { item(AREA_RECORDS, u64::from(index), stride) }
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

/// The index of a new node; `None` where the area or the memory that backs it is used up.
pub fn take_node(what: For) -> Option<u32> {
    let (used, stride) = (&header().nodes_used, size_of::<Node>() as u64);
    take(AREA_NODES, used, stride, what.spare(), |_| Some(()))
}

/// The index of a new record, where `prepare` sees to what else as many records need.
pub fn take_record(what: For, prepare: impl Fn(u64) -> Option<()>) -> Option<u32> {
    let stride = header().record_stride.load(Ordering::Relaxed);
    let used = &header().records_used;
    take(AREA_RECORDS, used, stride, what.spare(), |end| {
        prepare(end / stride)
    })
}

/// The index of a new thread entry.
pub fn take_thread() -> Option<u32> {
    let (used, stride) = (&header().threads_used, size_of::<ThreadEntry>() as u64);
    take(AREA_THREADS, used, stride, 0, |_| Some(()))
}

/// The index of a new histogram.
pub fn take_histogram() -> Option<u32> {
    let (used, stride) = (&header().histograms_used, size_of::<Histogram>() as u64);
    take(AREA_HISTOGRAMS, used, stride, 0, |_| Some(()))
}
