//! The layout of a segment.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Relaxed, Release};

use abi::count::{BANKS, MOST_COUNTERS};
use abi::schema::MAX_COLUMNS;
use abi::segment::{
    AREA_ASKED, AREA_CALLS, AREA_COLUMNS, AREA_COUNTS, AREA_DOCUMENT_0, AREA_DOCUMENT_1,
    AREA_HISTOGRAMS, AREA_JOURNAL, AREA_MODULES, AREA_NODES, AREA_PHASES, AREA_RECORDS,
    AREA_TABLES, AREA_THREADS, AREAS, Asked, FIRST_NODE, Header, Histogram, JournalEntry, MAGIC,
    MOST_PHASES, ModuleEntry, NO_LIMIT, Node, PhaseEntry, Record, STATE_SETUP, ThreadEntry,
    columns_stride,
};
use abi::single::{CALLS_BYTES, CALLS_STRIDE};
use abi::{ABI_VERSION, MAX_THREADS, PAGE};

use ipath_target::process::Process;

/// The parameters that determine the size of a segment. The file is sparse: it takes memory as it
/// is written.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The maximum number of distinct paths.
    pub max_paths: u64,
    /// The number of columns that each record needs.
    pub columns: usize,
    /// True if single calls are kept.
    pub keeps_single: bool,
}

/// Journal entries: several patches for each function, for the maximum number of functions.
const JOURNAL: u64 = 1 << 18;
/// Bytes of each area of the document.
pub(super) const DOCUMENT: u64 = 64 << 20;
/// Bytes that are reserved for the document to grow.
pub(super) const DOCUMENT_SPARE: u64 = 64 << 10;
/// The number of module entries.
const MODULES: u64 = 1 << 14;
/// Questions that can be open at a time: as many as the runtime keeps rules.
pub(super) const ASKED: u64 = 1 << 16;
/// Bytes of unwind tables: for two million functions.
const TABLES: u64 = 32 << 20;
/// Nodes per path that the user allows. Paths share most of their nodes.
const NODES_PER_PATH: u64 = 16;
/// Records per path that the user allows. Each thread that takes a path has its own.
const RECORDS_PER_PATH: u64 = 4;

impl Shape {
    /// The size of an item in bytes, and the number of items, for each area.
    fn items(&self) -> [(u64, u64); AREAS] {
        let records = self.max_paths.saturating_mul(RECORDS_PER_PATH).max(1 << 16);
        let mut items = [(0, 0); AREAS];
        items[AREA_JOURNAL] = (size_of::<JournalEntry>() as u64, JOURNAL);
        items[AREA_DOCUMENT_0] = (1, DOCUMENT);
        items[AREA_DOCUMENT_1] = (1, DOCUMENT);
        items[AREA_THREADS] = (size_of::<ThreadEntry>() as u64, MAX_THREADS as u64);
        items[AREA_MODULES] = (size_of::<ModuleEntry>() as u64, MODULES);
        let nodes = self.max_paths.saturating_mul(NODES_PER_PATH).max(1 << 18);
        items[AREA_NODES] = (size_of::<Node>() as u64, nodes.min(u32::MAX.into()));
        items[AREA_RECORDS] = (size_of::<Record>() as u64, records.min(u32::MAX.into()));
        let further = columns_stride(self.room());
        items[AREA_COLUMNS] = (further, records.min(u32::MAX.into()));
        items[AREA_HISTOGRAMS] = (size_of::<Histogram>() as u64, records.min(u32::MAX.into()));
        items[AREA_TABLES] = (1, TABLES);
        items[AREA_ASKED] = (size_of::<Asked>() as u64, ASKED);
        items[AREA_PHASES] = (size_of::<PhaseEntry>() as u64, MOST_PHASES);
        let calls = if self.keeps_single {
            CALLS_BYTES / CALLS_STRIDE
        } else {
            0
        };
        items[AREA_CALLS] = (CALLS_STRIDE, calls);
        items[AREA_COUNTS] = (size_of::<u64>() as u64, BANKS as u64 * MOST_COUNTERS);
        items
    }

    /// The offset in bytes and the capacity in items of each area, and the size of the segment in
    /// bytes.
    fn areas(&self) -> ([(u64, u64); AREAS], u64) {
        let mut areas = [(0, 0); AREAS];
        let mut offset = PAGE;
        for (area, (stride, count)) in areas.iter_mut().zip(self.items()) {
            *area = (offset, count);
            offset = (offset + stride * count).next_multiple_of(PAGE);
        }
        (areas, offset)
    }

    /// The byte ranges of the header and the roots of the tree, which the runtime reads before it
    /// populates anything itself.
    pub fn read_first(&self) -> [std::ops::Range<u64>; 2] {
        let (areas, _) = self.areas();
        let (start, _) = areas[AREA_NODES];
        let roots = u64::from(FIRST_NODE) * size_of::<Node>() as u64;
        [0..PAGE, start..start + roots.next_multiple_of(PAGE)]
    }

    /// The byte ranges that every session needs: those of [`Self::read_first`], and room for a
    /// document and its successor.
    fn least(&self) -> [std::ops::Range<u64>; 4] {
        let (areas, _) = self.areas();
        let document = |area: usize| areas[area].0..areas[area].0 + DOCUMENT_SPARE;
        let [header, roots] = self.read_first();
        let [first, second] = [AREA_DOCUMENT_0, AREA_DOCUMENT_1].map(document);
        [header, first, second, roots]
    }

    /// Allocates memory for the ranges that every session needs.
    ///
    /// # Errors
    /// `StorageFull` if there is not enough memory. Touching a page without memory would raise
    /// SIGBUS.
    pub(super) fn populate_least(&self, file: &File) -> io::Result<()> {
        let write = |range: std::ops::Range<u64>| {
            file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start)
        };
        self.least().into_iter().try_for_each(write)
    }

    /// The size of the segment in bytes.
    pub fn size(&self) -> u64 {
        self.areas().1
    }

    /// Lays out a segment of zeroes.
    pub(super) fn write(&self, header: &Header, process: &Process) {
        let (areas, size) = self.areas();
        for (area, (offset, capacity)) in header.areas.iter().zip(areas) {
            area.offset.store(offset, Relaxed);
            area.capacity.store(capacity, Relaxed);
        }
        header.version.store(ABI_VERSION, Relaxed);
        header.pid.store(process.pid.0 as u32, Relaxed);
        header.start_time.store(process.start_time, Relaxed);
        header.size.store(size, Relaxed);
        header.state.store(STATE_SETUP, Relaxed);
        header.columns.store(self.room() as u32, Relaxed);
        header.nodes_used.store(FIRST_NODE.into(), Relaxed);
        header.phases_used.store(1, Relaxed);
        header.memory_limit.store(NO_LIMIT, Relaxed);
        header.magic.store(MAGIC, Release);
    }

    /// The number of columns that each record has room for.
    fn room(&self) -> usize {
        const LEAST: usize = 8;
        self.columns.max(LEAST)
    }

    /// The number of columns to have with some to spare, up to the maximum: metrics may be added
    /// later.
    pub fn with_spare(columns: usize) -> usize {
        const SPARE: usize = 4;
        columns.max((columns + SPARE).min(MAX_COLUMNS))
    }

    /// Bytes per item of an area, if records have room for `columns` columns.
    pub(super) fn stride(area: usize, columns: u32) -> u64 {
        let shape = Self {
            max_paths: 0,
            columns: columns as usize,
            keeps_single: false,
        };
        shape.items().get(area).map_or(1, |item| item.0)
    }

    /// Checks that the areas of an untrusted header are inside a map of `len` bytes. The error
    /// names the invalid field.
    pub(super) fn check(header: &Header, len: u64) -> Result<(), &'static str> {
        if header.size.load(Relaxed) != len {
            return Err("size");
        }
        let shape = Self {
            max_paths: u64::MAX,
            columns: header.columns.load(Relaxed) as usize,
            keeps_single: true,
        };
        if shape.columns > MAX_COLUMNS || shape.columns != shape.room() {
            return Err("columns");
        }
        let items = shape.items();
        for (area, (stride, most)) in header.areas.iter().zip(items) {
            let (offset, capacity) = (area.offset(), area.capacity());
            let bytes = capacity.checked_mul(stride);
            let end = bytes.and_then(|b| b.checked_add(offset));
            let fits = capacity <= most && end.is_some_and(|e| e <= len);
            if offset < PAGE || offset % 8 != 0 || !fits {
                return Err("areas");
            }
        }
        Ok(())
    }
}
