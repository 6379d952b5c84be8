//! The shared segment: the data of a session, which outlives the target and the command.
//!
//! The [`Header`] gives the offset of each area. The target writes nodes, records, threads and
//! modules; the command writes the rest.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::counter::Counted;
use crate::schema::source::COUNTERS;
pub use crate::site::{
    APART_SITE, NODE_IS_PATH, address_and_module, call_site, caller_of_site, caller_site, is_apart,
    number_of_path, path_site,
};

/// First eight bytes of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ipathseg");

/// Root node of complete paths: the walk reached a known root.
pub const ROOT_COMPLETE: u32 = 1;
/// Root node of all paths beyond the limit on paths.
pub const ROOT_OVERFLOW: u32 = 3;
/// Root node of paths cut at the depth that the user set.
pub const ROOT_CUT: u32 = 4;
/// First interned node. The other nodes below it end incomplete paths: [`crate::cause::Cause`].
pub const FIRST_NODE: u32 = 12;

/// Bytes populated at a time in the node, record and module areas.
pub const CHUNK: u64 = 64 * 1024;

/// An area of the segment: items of one size. Written once, before any other process has the
/// segment.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Area {
    /// Bytes from the start of the segment.
    pub offset: AtomicU64,
    /// Capacity in items.
    pub capacity: AtomicU64,
}

impl Area {
    /// Bytes from the start of the segment.
    #[inline(always)]
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Capacity in items.
    #[inline(always)]
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }
}

/// The segment's first page.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::ABI_VERSION`].
    pub version: AtomicU32,
    /// Process id of the target, as the command that created the segment sees it.
    pub pid: AtomicU32,
    /// Start time of the target in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_time: AtomicU64,
    /// Bytes of the whole segment.
    pub size: AtomicU64,
    /// Session state, one of the `STATE_*` values.
    pub state: AtomicU32,
    /// Columns per record, including the first one.
    pub columns: AtomicU32,
    /// Time-stamp counter when the session started.
    pub started_tsc: AtomicU64,
    /// Wall clock when the session started, ns since 1970.
    pub started_unix_ns: AtomicU64,
    /// Frequency of the time-stamp counter in Hz.
    pub clock_hz: AtomicU64,
    /// Time-stamp counter when the session was removed from its target, or 0.
    pub ended_tsc: AtomicU64,
    /// The number of nodes allocated, including the roots.
    pub nodes_used: AtomicU64,
    /// The number of records allocated.
    pub records_used: AtomicU64,
    /// The number of distinct paths interned.
    pub paths_used: AtomicU64,
    /// The number of thread entries allocated.
    pub threads_used: AtomicU64,
    /// The number of modules published by the runtime.
    pub modules_used: AtomicU64,
    /// The number of histograms allocated.
    pub histograms_used: AtomicU64,
    /// Bytes of unwind tables published by the command.
    pub tables_used: AtomicU64,
    /// The number of rule requests made by the runtime so far ([`Asked`]). The lower half is the
    /// command's futex (futex(2)).
    pub asked_used: AtomicU64,
    /// The length of the prefix of requests that are all answered. Their places may be reused.
    pub asked_done: AtomicU64,
    /// The number of calls that could not be recorded because their thread could not be registered,
    /// so that it has no [`ThreadEntry`].
    pub missed: AtomicU64,
    /// The areas, indexed by the `AREA_*` values.
    pub areas: [Area; AREAS],
    /// Length in bytes of the session document in each of its two areas.
    pub document_len: [AtomicU64; 2],
    /// Update counter of the session document. Its low bit selects the valid area.
    pub document_turn: AtomicU64,
    /// The number of journal entries written.
    pub journal_used: AtomicU64,
    /// The overhead of a timed call on the assembly fast path, in ticks; 0 until the runtime has
    /// measured it, and at least 1 afterwards.
    pub call_cost: AtomicU64,
    /// The number of loads and unloads of libraries while libraries were awaited. The thread that
    /// counts one waits.
    pub loads: AtomicU64,
    /// The number of those loads and unloads ([`Header::loads`]) that the command has processed.
    /// The lower half is the futex of the waiting threads (futex(2)).
    pub loads_seen: AtomicU64,
    /// The time-stamp counter until which a command promises to watch, unless it dies; 0 without a
    /// command.
    pub watched_until: AtomicU64,
    /// Process id of the command that watches ([`Header::watched_until`]) if it is visible in the
    /// target's pid namespace, else 0.
    pub watched_by: AtomicU64,
    /// Ticks of measurement overhead ([`ThreadEntry::overhead`]) spent counting loads and unloads
    /// and waiting for the command.
    pub loads_cost: AtomicU64,
    /// The number of loads and unloads of libraries while some were awaited and no command watched.
    pub loads_missed: AtomicU64,
    /// The thread that waits before it leaves the program, and its reason: [`departure`]. 0 if
    /// there is none. The lower half is the thread's futex.
    pub departing: AtomicU64,
    /// Bytes of the memory left in the target's cgroup that the session may take; [`NO_LIMIT`]
    /// without a limit. Written by the command.
    pub memory_limit: AtomicU64,
    /// Bytes that the session has taken: those laid out by the command, and those mapped and
    /// populated by the runtime since.
    pub memory_taken: AtomicU64,
    /// The largest number of bytes seen that the cgroup would have left without the session.
    pub memory_base: AtomicU64,
    /// 1 once the runtime has been refused memory because of `memory_limit`.
    pub memory_refused: AtomicU64,
    /// Why calls are on overflow paths: bits of [`crate::shortage::Shortage`].
    pub overflow_by: AtomicU64,
    /// Why calls could not be recorded: bits of [`crate::shortage::Shortage`].
    pub missed_by: AtomicU64,
    /// The time of the last deregistration of unwind entries, by the time-stamp counter. Written
    /// before tables are searched for these entries.
    pub taken_back: AtomicU64,
    /// Process id of the first of the processes that are measured as one, as the command sees it; 0
    /// if the target is measured alone. Written by the command.
    pub family_pid: AtomicU64,
    /// Start time of the process `family_pid`, as `start_time`.
    pub family_start: AtomicU64,
    /// 1 once paths are kept apart by phase.
    pub phases_kept: AtomicU64,
    /// The number of phases allocated, including the first one ([`OUTSIDE`]).
    pub phases_used: AtomicU64,
    /// The number of phases without a [`PhaseEntry`]. Their calls share one phase ([`FURTHER`]).
    pub phases_further: AtomicU64,
    /// The phase that a command has begun last; [`OUTSIDE`] if none has.
    pub phase_marked: AtomicU64,
    /// The phase that a function has begun last, if it has not ended; otherwise [`OUTSIDE`].
    pub phase_begun: AtomicU64,
    /// The number of items of single calls allocated ([`crate::single`]).
    pub calls_used: AtomicU64,
    /// The number of calls of which nothing was kept, because their thread had no block for their
    /// function.
    pub calls_without_block: AtomicU64,
    /// CLOCK_MONOTONIC when the session started, in ns.
    pub started_monotonic_ns: AtomicU64,
    /// Statistics of each counter.
    pub counted: [Counted; COUNTERS],
}

/// [`Header::departing`]: the program is about to execute a file (execve(2)).
pub const DEPARTS_BY_EXEC: u32 = 1;
/// [`Header::departing`]: the process is about to exit.
pub const DEPARTS_BY_EXIT: u32 = 2;
/// [`Header::departing`]: the process is about to check for leaks, and may continue.
pub const DEPARTS_BY_CHECK: u32 = 3;

/// A value of [`Header::departing`]. `why` is one of the `DEPARTS_BY_*` values, `tid` the thread's
/// id in the target's own pid namespace.
pub const fn departure(why: u32, tid: u32) -> u64 {
    (why as u64) << 32 | tid as u64
}

/// The reason (`why`) and the thread id of a [`departure`].
pub const fn departure_parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The value of [`Header::memory_limit`] without a limit.
pub const NO_LIMIT: u64 = u64::MAX;

/// The runtime is mapped into the target, but nothing is patched yet.
pub const STATE_SETUP: u32 = 1;
/// Probes are installed, or can be.
pub const STATE_ACTIVE: u32 = 2;
/// Everything has been removed from the target.
pub const STATE_ENDED: u32 = 3;
/// No probe is installed, no thread is in the runtime, and the mappings are being removed.
pub const STATE_LEAVING: u32 = 4;

/// Number of areas.
pub const AREAS: usize = 14;
/// Area of [`JournalEntry`].
pub const AREA_JOURNAL: usize = 0;
/// Area of bytes: the session document (JSON) at even turns.
pub const AREA_DOCUMENT_0: usize = 1;
/// Area of bytes: the session document (JSON) at odd turns.
pub const AREA_DOCUMENT_1: usize = 2;
/// Area of [`ThreadEntry`].
pub const AREA_THREADS: usize = 3;
/// Area of [`ModuleEntry`].
pub const AREA_MODULES: usize = 4;
/// Area of [`Node`].
pub const AREA_NODES: usize = 5;
/// Area of [`Record`].
pub const AREA_RECORDS: usize = 6;
/// Area of [`Histogram`].
pub const AREA_HISTOGRAMS: usize = 7;
/// Area of bytes: tables up to `tables_used`, each a [`TableHead`] followed by its [`TableRow`]s.
pub const AREA_TABLES: usize = 8;
/// Area of [`Asked`].
pub const AREA_ASKED: usize = 9;
/// Area of the further columns of records: [`Header::columns`] - 1 for each record, in the order of
/// the records.
pub const AREA_COLUMNS: usize = 10;
/// Area of counters: the banks of [`crate::count`], a `u64` for each counter.
pub const AREA_COUNTS: usize = 11;
/// Area of [`PhaseEntry`].
pub const AREA_PHASES: usize = 12;
/// Area of the items of single calls ([`crate::single`]); empty if none are kept.
pub const AREA_CALLS: usize = 13;

/// The maximum number of bytes that a journal entry changes.
pub const JOURNAL_BYTES: usize = 24;

/// A change of the target's text, with the original bytes.
#[repr(C)]
pub struct JournalEntry {
    /// Address in the target.
    pub address: AtomicU64,
    /// [`JOURNAL_EMPTY`], [`JOURNAL_INTENT`], [`JOURNAL_WRITTEN`] or [`JOURNAL_UNDONE`].
    pub state: AtomicU32,
    /// Length of the change in bytes.
    pub len: AtomicU32,
    /// The original bytes at `address`, `len` of them.
    pub old: [AtomicU64; JOURNAL_BYTES / 8],
    /// The bytes that replace the original ones, `len` of them.
    pub new: [AtomicU64; JOURNAL_BYTES / 8],
}

/// A journal entry that is not in use.
pub const JOURNAL_EMPTY: u32 = 0;
/// The new bytes of a journal entry may have been written.
pub const JOURNAL_INTENT: u32 = 1;
/// The new bytes of a journal entry have been written.
pub const JOURNAL_WRITTEN: u32 = 2;
/// The original bytes of a journal entry have been restored.
pub const JOURNAL_UNDONE: u32 = 3;

/// One thread of the target that has recorded.
#[repr(C)]
pub struct ThreadEntry {
    /// Thread id in the target's own pid namespace. If several threads used the entry in turn, the
    /// id of the last.
    pub tid: AtomicU32,
    /// Not used; zero.
    pub reserved: AtomicU32,
    /// Calls missed on this thread: `missed_short`, `missed_stack`, and calls by signal handlers
    /// that interrupted the runtime.
    pub missed: AtomicU64,
    /// Measurement overhead on this thread, in ticks.
    pub overhead: AtomicU64,
    /// Thread name when the thread last created a path, if paths are kept per thread: 16 bytes
    /// (PR_GET_NAME of prctl(2)), or zeroes.
    pub name: [AtomicU64; 2],
    /// Calls missed because of a [`crate::shortage::Shortage`].
    pub missed_short: AtomicU64,
    /// Calls missed because their stack is unknown.
    pub missed_stack: AtomicU64,
    /// Not used; zero. It keeps each thread's entry on cache lines of its own.
    pub padding: AtomicU64,
}

/// A phase of the program.
#[repr(C)]
pub struct PhaseEntry {
    /// Time-stamp counter when the phase began; 0 while the entry is not in use.
    pub begun: AtomicU64,
    /// Time-stamp counter when the phase ended; 0 before that.
    pub ended: AtomicU64,
    /// Thread id of the thread that began the phase; 0 if a command did.
    pub tid: AtomicU32,
    /// The id of the function whose call is the phase; [`MARKED`] if a command began it.
    pub function: AtomicU32,
}

/// The maximum number of phases of a session with an entry, with [`OUTSIDE`].
pub const MOST_PHASES: u64 = 4095;
/// The index of the phase of calls that begin outside of all others.
pub const OUTSIDE: u32 = 0;
/// The index that stands for all phases without an entry.
pub const FURTHER: u32 = MOST_PHASES as u32;
/// [`PhaseEntry::function`] of a phase that a command has begun.
pub const MARKED: u32 = u32::MAX;

/// Maximum length of a published module path, in bytes.
pub const MODULE_PATH: usize = 264;

/// A device's major and minor number in one word, in the kernel's format (linux/kdev_t.h, MKDEV).
/// Higher bits of the numbers than the word has room for are lost.
pub const fn device(major: u64, minor: u64) -> u32 {
    ((major as u32 & 0xfff) << 20) | (minor as u32 & 0xf_ffff)
}

/// The major and minor number packed in a [`device`] word.
pub const fn device_numbers(device: u32) -> (u32, u32) {
    (device >> 20, device & 0xf_ffff)
}

/// An executable mapping of a file that the runtime has seen.
#[repr(C)]
pub struct ModuleEntry {
    /// First address of the mapping in the target.
    pub start: AtomicU64,
    /// First address after it.
    pub end: AtomicU64,
    /// Offset of the mapping in its file, in bytes.
    pub offset: AtomicU64,
    /// Length of `path` in bytes. It is stored last, so 0 means that the entry is not yet
    /// published.
    pub path_len: AtomicU32,
    /// Device of the file, as [`device`] packs it.
    pub device: AtomicU32,
    /// Inode of the file.
    pub inode: AtomicU64,
    /// Time-stamp counter when the runtime first saw the mapping.
    pub seen_tsc: AtomicU64,
    /// [`build_of`] the start of the file as it was mapped; 0 if that could not be read.
    pub build: AtomicU64,
    /// Path of the file as /proc/PID/maps gives it.
    pub path: [AtomicU64; MODULE_PATH / 8],
}

/// Bytes at the start of a file that distinguish its builds. They usually include the build id.
pub const BUILD_BYTES: usize = 2048;

/// A hash (FNV-1a by words; never 0) that distinguishes files with the same name and inode by their
/// first bytes. It ignores the location and size of the section table (`e_shoff`, `e_shentsize` and
/// the fields after it in an ELF header). strip(1) changes these fields, but no code.
pub const fn build_of(beginning: &[u8; BUILD_BYTES]) -> u64 {
    /// The index of the header's word `e_shoff`.
    const SECTIONS_AT: usize = 5;
    /// The index of the header's word of which all but the first two bytes (`e_phnum`) describe
    /// sections.
    const SECTIONS_LEN: usize = 7;
    let (words, _) = beginning.as_chunks::<8>();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < words.len() {
        let mattering = match at {
            SECTIONS_AT => 0,
            SECTIONS_LEN => 0xffff,
            _ => u64::MAX,
        };
        let word = u64::from_le_bytes(words[at]) & mattering;
        hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        hash ^= hash >> 29;
        at += 1;
    }
    hash | 1
}

/// A return address for which the runtime requests a rule: it has none, or only an expensive one.
/// Request `n` is at index `n` modulo the capacity.
#[repr(C)]
pub struct Asked {
    /// The return address. It is stored last, so 0 means that there is no request yet. [`ANSWERED`]
    /// once the command has processed the request.
    pub address: AtomicU64,
    /// The frame pointer minus the stack pointer after the return, in bytes, if the frame pointer
    /// may point into this frame; else [`NO_FRAME_POINTER`].
    pub frame_pointer: AtomicU64,
}

/// The value of [`Asked::frame_pointer`] if the frame pointer cannot point into the frame.
pub const NO_FRAME_POINTER: u64 = u64::MAX;
/// The value of [`Asked::address`] of a processed request. No call returns to that address.
pub const ANSWERED: u64 = 1;

/// A search table for code whose file has none, sorted by address.
#[repr(C)]
pub struct TableHead {
    /// One of the `TABLE_OF_*` values.
    pub kind: AtomicU64,
    /// First address of the code.
    pub start: AtomicU64,
    /// First address after it.
    pub end: AtomicU64,
    /// First address of the unwind entries (`.eh_frame`).
    pub frames: AtomicU64,
    /// First address after the unwind entries.
    pub frames_end: AtomicU64,
    /// The number of [`TableRow`]s that follow.
    pub rows: AtomicU64,
    /// Time-stamp counter when the code was seen at the addresses from `start` to `end`. The table
    /// does not describe code mapped at these addresses later.
    pub seen_tsc: AtomicU64,
}

/// The rows are unwind entries.
pub const TABLE_OF_ENTRIES: u64 = 1;
/// The rows are rules of return addresses, for code without unwind entries.
pub const TABLE_OF_RULES: u64 = 2;
/// The rows are the text of /proc/PID/maps, padded with line feeds, for a runtime that may not read
/// the file. The last such table is valid.
pub const TABLE_OF_MAPS: u64 = 3;

/// The rows are rules for code whose generator follows conventions. A row covers all return
/// addresses up to the next row.
pub const TABLE_OF_CONVENTIONS: u64 = 4;

/// Rules of code whose unwind entries the program has registered. The rule of a row is for all
/// return addresses up to the next row, and 0 means no rule. [`TableHead::frames`] is the address
/// passed at registration. [`TableHead::frames_end`] is the address of the `__jit_debug_descriptor`
/// whose list contains the file, or 0. The table holds as long as [`TableHead::seen_tsc`] is not 0.
pub const TABLE_OF_REGISTERED: u64 = 5;

/// A row of a search table.
#[repr(C)]
pub struct TableRow {
    /// First address covered by an entry or a convention, or a return address.
    pub start: AtomicU64,
    /// Address of the frame description entry, or the rule as a word (`unwind::Rule::encode`).
    pub value: AtomicU64,
}

/// A node of the calling-context tree: one call site under a parent, or a probed function at the
/// end of a path.
#[repr(C)]
pub struct Node {
    /// For a call site, the return address in the encoding of [`call_site`]. For the end of a path,
    /// the function id with [`NODE_IS_PATH`] set.
    pub key: AtomicU64,
    /// The index of the caller's node, or of the root node.
    pub parent: AtomicU32,
    /// The index of the next node of the same hash bucket; 0 if this is the last one.
    pub next: AtomicU32,
    /// The number of nodes from this one, including it, up to the root node, excluding it.
    pub depth: AtomicU32,
    /// The index of the child that was added last, which is likely to be looked up next; 0 if there
    /// is none.
    pub likely: AtomicU32,
}

/// The measurements of one path by one thread. Only that thread writes them, under a sequence lock.
#[repr(C)]
pub struct RecordHead {
    /// Odd while the thread writes.
    pub sequence: AtomicU32,
    /// Node of the path; 0 while the record is not in use.
    pub path: AtomicU32,
    /// Index of the thread's [`ThreadEntry`].
    pub thread: AtomicU16,
    /// Index of the [`Schema`](crate::schema::Schema) that defines the record's columns.
    pub schema: AtomicU8,
    /// The part of the record's calls that the assembly fast path measures: one of
    /// [`crate::schema::way`].
    pub way: AtomicU8,
    /// Thread id of the writer when the record was made.
    pub tid: AtomicU32,
    /// The number of activations entered.
    pub entered: AtomicU64,
    /// The number of activations that returned, or left by a tail call.
    pub closed: AtomicU64,
    /// The number of activations ended by an exception, by longjmp or by the end of the thread.
    pub unwound: AtomicU64,
    /// The part of `closed` that left by a tail call.
    pub tail: AtomicU64,
    /// The number of activations entered on other threads that this thread has taken over with
    /// their stack.
    pub moved_in: AtomicU64,
    /// The number of activations entered or taken over here that other threads have taken over
    /// since. Those threads write it.
    pub moved_out: AtomicU64,
}

/// The number of histogram buckets in a column. Values outside them are counted in a histogram of
/// the pool.
pub const INLINE_BUCKETS: usize = 8;
/// Added to [`Column::first_bucket`] if there was no memory for a histogram: all values then count
/// in that bucket.
pub const NO_BUCKET: u32 = 64;

/// An item of the record area.
#[repr(C)]
pub struct Record {
    /// The path, the thread, and the counts.
    pub head: RecordHead,
    /// The first column.
    pub first: Column,
}

/// The aggregates of one column of a record: a timer in ticks, a counter, or a value.
#[repr(C)]
pub struct Column {
    /// Sum over all measurements: one per closed activation, or one per entered activation for an
    /// argument. For values it wraps around.
    pub sum: AtomicU64,
    /// Smallest value of a single measurement; `u64::MAX` before the first one.
    pub min: AtomicU64,
    /// Largest value of a single measurement; 0 before the first one.
    pub max: AtomicU64,
    /// Sum over the activations that no activation of the same function encloses; 0 for a value.
    pub outermost: AtomicU64,
    /// For timers and counters, the sum without the share of nested probed functions, as a signed
    /// number. For values, the sum of the upper 32 bits ([`crate::value::whole_sum`]).
    pub exclusive: AtomicU64,
    /// 0, or the index plus one of the histogram in the pool.
    pub histogram: AtomicU32,
    /// Exponent of the first inline bucket: it counts values in [2^k, 2^(k+1)) for exponent k. See
    /// also [`NO_BUCKET`].
    pub first_bucket: AtomicU32,
    /// Counts for `first_bucket` and the next exponents. Further counts may be in the pool.
    pub buckets: [AtomicU16; INLINE_BUCKETS],
}

/// The counts that do not fit into the record: entry k counts values in [2^k, 2^(k+1)).
#[repr(C)]
pub struct Histogram {
    /// The counts.
    pub buckets: [AtomicU64; 64],
}

/// Bytes of the further columns of a record that has `columns` columns, including the first one.
pub const fn columns_stride(columns: usize) -> u64 {
    (columns.saturating_sub(1) * size_of::<Column>()) as u64
}

const _: () = {
    assert!(size_of::<Header>() <= crate::PAGE as usize);
    assert!(offset_of!(Header, areas) % 8 == 0);
    assert!(size_of::<JournalEntry>() == 64);
    assert!(size_of::<ThreadEntry>() == 64);
    assert!(size_of::<PhaseEntry>() == 24);
    assert!(size_of::<ModuleEntry>() == 320);
    assert!(size_of::<Node>() == 24);
    assert!(size_of::<RecordHead>() == 64);
    assert!(crate::MAX_THREADS <= 1 << 16);
    assert!(size_of::<Column>() == 64);
    assert!(size_of::<Record>() == 128);
    assert!(crate::schema::MAX_SCHEMAS <= 1 << 8);
    assert!(size_of::<Histogram>() == 512);
    assert!(size_of::<TableHead>() == 56);
    assert!(size_of::<TableRow>() == 16);
};
