//! The shared segment: what survives both processes.
//!
//! The areas follow each other at the offsets the [`Header`] names. The target writes nodes,
//! records, threads and modules; the command writes the rest.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::counter::Counted;
use crate::schema::source::COUNTERS;

/// First eight bytes of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ipathseg");

/// Node that ends a complete path: the walk came to a known root.
pub const ROOT_COMPLETE: u32 = 1;
/// Node that stands for all paths beyond the limit on paths.
pub const ROOT_OVERFLOW: u32 = 3;
/// Node that ends a path cut at the depth the user asked for.
pub const ROOT_CUT: u32 = 4;
/// First node that is interned. The others before it end incomplete paths: [`crate::cause::Cause`].
pub const FIRST_NODE: u32 = 12;

/// Bytes that the node, record and module areas are populated by at a time.
pub const CHUNK: u64 = 64 * 1024;

/// An area of the segment: items of one size. Stored once, before anyone else has the segment.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Area {
    /// Bytes from the start of the segment.
    pub offset: AtomicU64,
    /// How many items there is room for.
    pub capacity: AtomicU64,
}

impl Area {
    /// Bytes from the start of the segment.
    #[inline(always)]
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// How many items there is room for.
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
    /// Columns that a record has room for, the first one included.
    pub columns: AtomicU32,
    /// Time-stamp counter when the session started.
    pub started_tsc: AtomicU64,
    /// Wall clock when the session started, ns since 1970.
    pub started_unix_ns: AtomicU64,
    /// Frequency of the time-stamp counter in Hz.
    pub clock_hz: AtomicU64,
    /// Time-stamp counter when the session was taken out of its target, else 0.
    pub ended_tsc: AtomicU64,
    /// Nodes handed out, those of the roots included.
    pub nodes_used: AtomicU64,
    /// Records handed out.
    pub records_used: AtomicU64,
    /// Distinct paths interned.
    pub paths_used: AtomicU64,
    /// Threads that have ever recorded.
    pub threads_used: AtomicU64,
    /// Modules published by the runtime.
    pub modules_used: AtomicU64,
    /// Histograms handed out.
    pub histograms_used: AtomicU64,
    /// Bytes of unwind tables published by the command.
    pub tables_used: AtomicU64,
    /// Questions that the runtime has ever asked. Its lower half is what the command sleeps by (futex(2)).
    pub asked_used: AtomicU64,
    /// How many of the first of those have all been dealt with, so that others may take their places.
    pub asked_done: AtomicU64,
    /// Calls that could not be recorded for want of a thread's record.
    pub missed: AtomicU64,
    /// Where each area lies, indexed by the `AREA_*` values.
    pub areas: [Area; AREAS],
    /// Length in bytes of the session document in each of its two areas.
    pub document_len: [AtomicU64; 2],
    /// Which area of the session document is valid: the low bit of this counter.
    pub document_turn: AtomicU64,
    /// Journal entries written.
    pub journal_used: AtomicU64,
    /// Ticks that a call takes whose time is measured, at the least; 0 as long as the runtime has not found it out.
    pub call_cost: AtomicU64,
    /// How often libraries have come or gone while some are awaited. Who has noted that waits.
    pub loads: AtomicU64,
    /// How many of these the command has looked at. Its lower half is what who waits sleeps by (futex(2)).
    pub loads_seen: AtomicU64,
    /// Until when, by the time-stamp counter, a command is sure to be looking, if it lives; 0 where none has.
    pub watched_until: AtomicU64,
    /// Process id of that command, where the target would know it by that; else 0.
    pub watched_by: AtomicU64,
    /// Ticks of what measuring has taken ([`ThreadEntry::overhead`]) in which that has been noted and waited for.
    pub loads_cost: AtomicU64,
    /// The number of loads and unloads of libraries while some were awaited and no command watched.
    pub loads_missed: AtomicU64,
    /// The thread that waits before it leaves the program, and its reason: [`departure`]. 0 if
    /// there is none. The lower half is the thread's futex.
    pub departing: AtomicU64,
    /// Bytes of the memory left in the target's cgroup that the session may take; [`NO_LIMIT`]
    /// without a limit. Written by the command.
    pub memory_limit: AtomicU64,
    /// Bytes that it has taken: those laid out by the command, and those mapped and populated by
    /// the runtime since.
    pub memory_taken: AtomicU64,
    /// The largest number of bytes seen that the cgroup would have left without the session.
    pub memory_base: AtomicU64,
    /// 1 once the runtime has been refused memory because of that limit.
    pub memory_refused: AtomicU64,
    /// Why calls are on overflow paths: bits of [`crate::shortage::Shortage`].
    pub overflow_by: AtomicU64,
    /// As above, for calls that could not be recorded.
    pub missed_by: AtomicU64,
    /// The time of the last deregistration of unwind entries, by the time-stamp counter. Written
    /// before tables are searched for these entries.
    pub taken_back: AtomicU64,
    /// Process id and start time of the first of the processes that are measured as one; 0 if the target
    /// is measured alone. Written by the command.
    pub family_pid: AtomicU64,
    /// See `family_pid`.
    pub family_start: AtomicU64,
    /// How it went with each counter.
    pub counted: [Counted; COUNTERS],
}

/// [`Header::departing`]: the program is about to execute a file (execve(2)).
pub const DEPARTS_BY_EXEC: u32 = 1;
/// [`Header::departing`]: the process is about to exit.
pub const DEPARTS_BY_EXIT: u32 = 2;
/// [`Header::departing`]: the process is about to check for leaks, and may continue.
pub const DEPARTS_BY_CHECK: u32 = 3;

/// A value of [`Header::departing`]. `tid` is the thread's id in the target's own pid namespace.
pub const fn departure(why: u32, tid: u32) -> u64 {
    (why as u64) << 32 | tid as u64
}

/// The reason and the thread id of a [`departure`].
pub const fn departure_parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// See [`Header::memory_limit`].
pub const NO_LIMIT: u64 = u64::MAX;

/// The target has been mapped into but nothing is patched yet.
pub const STATE_SETUP: u32 = 1;
/// Probes are in, or can be.
pub const STATE_ACTIVE: u32 = 2;
/// Everything is out of the target again.
pub const STATE_ENDED: u32 = 3;
/// No probe is in, nobody is inside, and the mappings are being taken out.
pub const STATE_LEAVING: u32 = 4;

/// Number of areas.
pub const AREAS: usize = 11;
/// Area of [`JournalEntry`].
pub const AREA_JOURNAL: usize = 0;
/// Area of bytes: the session document at even turns, JSON.
pub const AREA_DOCUMENT_0: usize = 1;
/// Area of bytes: the session document at odd turns.
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
/// Area of bytes: a [`TableHead`] with its [`TableRow`]s, and the next, up to `tables_used`.
pub const AREA_TABLES: usize = 8;
/// Area of [`Asked`].
pub const AREA_ASKED: usize = 9;
/// Area of the further columns of records, one less than [`Header::columns`] for each record, in the records' order.
pub const AREA_COLUMNS: usize = 10;

/// Most bytes one journal entry can change.
pub const JOURNAL_BYTES: usize = 24;

/// What stood at a place of the target's text before it was changed.
#[repr(C)]
pub struct JournalEntry {
    /// Where, in the target.
    pub address: AtomicU64,
    /// [`JOURNAL_EMPTY`], [`JOURNAL_INTENT`], [`JOURNAL_WRITTEN`] or [`JOURNAL_UNDONE`].
    pub state: AtomicU32,
    /// How many bytes.
    pub len: AtomicU32,
    /// The original bytes.
    pub old: [AtomicU64; JOURNAL_BYTES / 8],
    /// The bytes in their stead.
    pub new: [AtomicU64; JOURNAL_BYTES / 8],
}

/// Entry not in use.
pub const JOURNAL_EMPTY: u32 = 0;
/// The bytes may have been written.
pub const JOURNAL_INTENT: u32 = 1;
/// The bytes have been written.
pub const JOURNAL_WRITTEN: u32 = 2;
/// The original bytes stand again.
pub const JOURNAL_UNDONE: u32 = 3;

/// One thread of the target that has recorded.
#[repr(C)]
pub struct ThreadEntry {
    /// Thread id in the target's own pid namespace; the last owner's where several had it in turn.
    pub tid: AtomicU32,
    /// Not used; zero.
    pub reserved: AtomicU32,
    /// Calls missed on this thread: of the two kinds below, and those that a signal handler made
    /// while the runtime was at work there.
    pub missed: AtomicU64,
    /// Ticks that measuring has taken on it.
    pub overhead: AtomicU64,
    /// Its name when it was last on a path that it had not been on, where threads are told apart: 16 bytes (PR_GET_NAME of
    /// prctl(2)), or zeroes.
    pub name: [AtomicU64; 2],
    /// Calls missed because of a [`crate::shortage::Shortage`].
    pub missed_short: AtomicU64,
    /// Calls missed because nothing is known of their stack.
    pub missed_stack: AtomicU64,
    /// Not used; zero. Each thread writes to a line of its own.
    pub padding: AtomicU64,
}

/// Longest module path that is published, in bytes.
pub const MODULE_PATH: usize = 264;

/// A device's major and minor number in one word, as the kernel has them (linux/kdev_t.h, MKDEV).
pub const fn device(major: u64, minor: u64) -> u32 {
    ((major as u32 & 0xfff) << 20) | (minor as u32 & 0xf_ffff)
}

/// Major and minor number of a [`device`].
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
    /// Offset of the mapping in its file, bytes.
    pub offset: AtomicU64,
    /// Bytes of `path`; stored last, so 0 means not yet published.
    pub path_len: AtomicU32,
    /// Device of the file, as [`device`] packs it.
    pub device: AtomicU32,
    /// Inode of the file.
    pub inode: AtomicU64,
    /// The time-stamp counter when it was seen.
    pub seen_tsc: AtomicU64,
    /// [`build_of`] the file's beginning as it was mapped; 0 where that could not be read.
    pub build: AtomicU64,
    /// Path as /proc/PID/maps gives it.
    pub path: [AtomicU64; MODULE_PATH / 8],
}

/// Bytes of a file's beginning that tell one build of it from another: as a rule the build id is among them.
pub const BUILD_BYTES: usize = 2048;

/// What tells files apart that begin so and have the same name and inode (FNV-1a by words; never 0). Where the table of sections is, and how long
/// it is (`e_shoff`, `e_shentsize` and what follows it in an ELF header), does not matter: that changes where names are taken out of a file (strip(1)),
/// and no code does.
pub const fn build_of(beginning: &[u8; BUILD_BYTES]) -> u64 {
    /// Words of the header that tell of sections: one, and all but the first two bytes (`e_phnum`) of the other.
    const SECTIONS_AT: usize = 5;
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

/// A return address of which the runtime asks for a rule: it has none, or one that costs more than it need. Question
/// `n` is in place `n` modulo the capacity.
#[repr(C)]
pub struct Asked {
    /// The address; stored last, so 0 means not yet asked. [`ANSWERED`] once it has been dealt with.
    pub address: AtomicU64,
    /// Bytes from the stack pointer after the return to what the frame pointer points to, where that may be in this frame; else
    /// [`NO_FRAME_POINTER`].
    pub frame_pointer: AtomicU64,
}

/// See [`Asked`].
pub const NO_FRAME_POINTER: u64 = u64::MAX;
/// See [`Asked`]. No call returns to that address.
pub const ANSWERED: u64 = 1;

/// A search table for code whose file has none, ordered by address.
#[repr(C)]
pub struct TableHead {
    /// [`TABLE_OF_ENTRIES`] or another such number.
    pub kind: AtomicU64,
    /// First address of the code it is for.
    pub start: AtomicU64,
    /// First address after it.
    pub end: AtomicU64,
    /// First address of the unwind entries (`.eh_frame`).
    pub frames: AtomicU64,
    /// First address after them.
    pub frames_end: AtomicU64,
    /// How many [`TableRow`]s follow.
    pub rows: AtomicU64,
    /// The time-stamp counter when the code was seen to be mapped there: not that of what has come since.
    pub seen_tsc: AtomicU64,
}

/// Rows are unwind entries.
pub const TABLE_OF_ENTRIES: u64 = 1;
/// Rows are rules of return addresses, for code that has no unwind entries.
pub const TABLE_OF_RULES: u64 = 2;
/// Rows are the text of /proc/PID/maps, filled up with line feeds, for a runtime that may not read it; the last such
/// table is the one.
pub const TABLE_OF_MAPS: u64 = 3;

/// Rows are rules of all return addresses from there to the next row, for code whose generator keeps to conventions.
pub const TABLE_OF_CONVENTIONS: u64 = 4;

/// Rules of code whose unwind entries the program has registered. The rule of a row is for all
/// return addresses up to the next row, and 0 means no rule. [`TableHead::frames`] is the address
/// passed at registration. [`TableHead::frames_end`] is the address of the `__jit_debug_descriptor`
/// whose list contains the file, or 0. The table holds as long as [`TableHead::seen_tsc`] is not 0.
pub const TABLE_OF_REGISTERED: u64 = 5;

/// What there is for an address.
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
    /// The return address as [`call_site`] has it; for the end of a path the function id with [`NODE_IS_PATH`] set.
    pub key: AtomicU64,
    /// The caller's node.
    pub parent: AtomicU32,
    /// Next node of the same hash bucket.
    pub next: AtomicU32,
    /// Frames from here to the root.
    pub depth: AtomicU32,
    /// The call site last made under this one, which is likely to be looked up next; 0 without one.
    pub likely: AtomicU32,
}

/// Bit of [`Node::key`] that tells the end of a path from a call site.
pub const NODE_IS_PATH: u64 = 1 << 63;

/// Where [`Node::key`] has the module of a call site: above all addresses of a process.
const SITE_MODULE: u32 = 48;

/// The call that returns to `address`. `module` is 0 where no file has been mapped there before the one that it is in, as far as has been
/// seen; else one more than the number of that one's [`ModuleEntry`].
pub const fn call_site(address: u64, module: u64) -> u64 {
    address | module << SITE_MODULE
}

/// The same two of a call site.
pub const fn address_and_module(site: u64) -> (u64, u64) {
    (site & ((1 << SITE_MODULE) - 1), site >> SITE_MODULE)
}

/// What one thread has seen of one path: written by that thread alone, sequence-locked.
#[repr(C)]
pub struct RecordHead {
    /// Odd while the writer is inside.
    pub sequence: AtomicU32,
    /// Node of the path; 0 while the record is not in use.
    pub path: AtomicU32,
    /// Index of the thread.
    pub thread: AtomicU16,
    /// Its [`Schema`](crate::schema::Schema), which tells what its columns are.
    pub schema: AtomicU8,
    /// What the hand-written ways do of its calls: [`crate::schema::way`].
    pub way: AtomicU8,
    /// Thread id of the writer when the record was made.
    pub tid: AtomicU32,
    /// Activations entered.
    pub entered: AtomicU64,
    /// Activations that returned, or left by a tail call.
    pub closed: AtomicU64,
    /// Activations ended by an exception, longjmp or the thread's end.
    pub unwound: AtomicU64,
    /// Of those closed, the ones that left by a tail call.
    pub tail: AtomicU64,
    /// Activations entered on other threads that this one has taken over with their stack.
    pub moved_in: AtomicU64,
    /// Activations entered here or taken over that others have taken over: written by them.
    pub moved_out: AtomicU64,
}

/// Buckets a record holds itself; values outside them are counted in a histogram of the pool.
pub const INLINE_BUCKETS: usize = 8;
/// Added to [`Column::first_bucket`] where there was no memory for a histogram: all values are taken
/// to be in that one bucket.
pub const NO_BUCKET: u32 = 64;

/// A record as it stands in its area.
#[repr(C)]
pub struct Record {
    /// What it is of, and its counts.
    pub head: RecordHead,
    /// Its first column.
    pub first: Column,
}

/// What one column of a record adds up: a timer's ticks, or what a counter or a value is.
#[repr(C)]
pub struct Column {
    /// Sum over what was measured: the closed activations, or those entered of an argument. Of values it wraps around.
    pub sum: AtomicU64,
    /// Smallest value.
    pub min: AtomicU64,
    /// Largest value.
    pub max: AtomicU64,
    /// Sum over those that no activation of the same function enclosed; 0 of a value.
    pub outermost: AtomicU64,
    /// Sum without what is from nested probed functions, as a signed number; of a value that of its upper 32 bits
    /// ([`crate::value::whole_sum`]).
    pub exclusive: AtomicU64,
    /// 0, or the index plus one of the histogram in the pool.
    pub histogram: AtomicU32,
    /// Exponent of the first inline bucket.
    pub first_bucket: AtomicU32,
    /// Counts for `first_bucket` and the exponents that follow; more of them may be in the pool.
    pub buckets: [AtomicU16; INLINE_BUCKETS],
}

/// The part of a histogram that its record has no room for: entry k counts values in [2^k, 2^(k+1)).
#[repr(C)]
pub struct Histogram {
    /// The counts.
    pub buckets: [AtomicU64; 64],
}

/// Bytes of the further columns of a record.
pub const fn columns_stride(columns: usize) -> u64 {
    (columns.saturating_sub(1) * size_of::<Column>()) as u64
}

const _: () = {
    assert!(size_of::<Header>() <= crate::PAGE as usize);
    assert!(offset_of!(Header, areas) % 8 == 0);
    assert!(size_of::<JournalEntry>() == 64);
    assert!(size_of::<ThreadEntry>() == 64);
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
