//! The parts of the runtime's image that the command writes and reads. It finds the symbols below
//! by name in the image's symbol table.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::segment::AREAS;

/// Section of the image file, not loaded: the address in the image of each fence before an exit's
/// reading of the clock, 8 bytes each.
pub const FENCES: &str = "ipath_fences";
/// Symbol of the entry stub.
pub const SYMBOL_ENTRY_STUB: &str = "ipath_entry_stub";
/// Symbol of the entry stub that repeats every walk found in the cache of walks, and kills the
/// program (SIGILL) if the two walks differ. For tests.
pub const SYMBOL_VERIFIED_ENTRY_STUB: &str = "ipath_verified_entry_stub";
/// Symbol of the entry stub for paths of measured functions only: see [`BY_CALLERS`].
pub const SYMBOL_CALLED_STUB: &str = "ipath_called_stub";
/// Symbol of the stub for exits by a return.
pub const SYMBOL_EXIT_STUB: &str = "ipath_exit_stub";
/// Symbol of the stub for exits by a tail call that end the activation.
pub const SYMBOL_TAIL_STUB: &str = "ipath_tail_stub";
/// Symbol of the stub for tail calls to a function whose exits end the activation: the stub lends
/// the activation to that function.
pub const SYMBOL_LEND_STUB: &str = "ipath_lend_stub";
/// Symbol of the stub for returns of functions that are not measured. Such a return ends the
/// activations lent to its function.
pub const SYMBOL_ENDER_STUB: &str = "ipath_ender_stub";
/// Symbol of the stub for tail calls of functions that are not measured, to code that does not end
/// the activations lent to them.
pub const SYMBOL_ENDER_TAIL_STUB: &str = "ipath_ender_tail_stub";
/// Symbol of the stub for points.
pub const SYMBOL_POINT_STUB: &str = "ipath_point_stub";
/// Symbol of the point stub that repeats walks like [`SYMBOL_VERIFIED_ENTRY_STUB`]. For tests.
pub const SYMBOL_VERIFIED_POINT_STUB: &str = "ipath_verified_point_stub";
/// Symbol of the stub for starts of spans.
pub const SYMBOL_SPAN_STUB: &str = "ipath_span_stub";
/// Symbol of the span stub that repeats walks like [`SYMBOL_VERIFIED_ENTRY_STUB`]. For tests.
pub const SYMBOL_VERIFIED_SPAN_STUB: &str = "ipath_verified_span_stub";
/// Symbol of the stub for ends of spans.
pub const SYMBOL_SPAN_END_STUB: &str = "ipath_span_end_stub";
/// Symbol of the stub for starts of timed paths.
pub const SYMBOL_TIMED_PATH_STUB: &str = "ipath_timed_path_stub";
/// Symbol of the stub for starts of timed paths that repeats walks like
/// [`SYMBOL_VERIFIED_ENTRY_STUB`]. For tests.
pub const SYMBOL_VERIFIED_TIMED_PATH_STUB: &str = "ipath_verified_timed_path_stub";
/// Symbol of the stub for ends of timed paths.
pub const SYMBOL_TIMED_PATH_END_STUB: &str = "ipath_timed_path_end_stub";
/// Symbol of the stub for counts.
pub const SYMBOL_COUNT_STUB: &str = "ipath_count_stub";
/// Symbol of the stub for paths.
pub const SYMBOL_PATH_STUB: &str = "ipath_path_stub";
/// Symbol of the table of [`Slots`](crate::path::Slots), in pages
/// that are zeroed in a forked child.
pub const SYMBOL_PATHS: &str = "ipath_paths";
/// Symbol of the stub that does nothing.
pub const SYMBOL_IDLE_STUB: &str = "ipath_idle_stub";
/// Symbols of the code at which probes that need more stack continue on a stack that belongs to the
/// thread. For tests.
pub const SYMBOLS_AT_HOME: [&str; 3] = [
    "ipath_enter_at_home",
    "ipath_end_at_home",
    "ipath_part_at_home",
];
/// Symbol of [`Parameters`].
pub const SYMBOL_PARAMETERS: &str = "ipath_parameters";
/// Symbol of the page that is zeroed in a forked child. Its first word is [`ALIVE`] in the target.
/// It contains the table of [`Bank`](crate::count::Bank).
pub const SYMBOL_ALIVE: &str = "ipath_alive";
/// Symbol of the table of [`Probe`](crate::probe::Probe), [`crate::MAX_FUNCTIONS`] long.
pub const SYMBOL_PROBES: &str = "ipath_probes";
/// Symbol of a table with a `u64` for each row of the table of probes: the [`values`](crate::value)
/// of a function, or the [`Standing`](crate::point::Standing) frame of a point or span.
pub const SYMBOL_DETAILS: &str = "ipath_details";
/// Symbol of the table of [`FilterRange`](crate::filter::FilterRange),
/// [`MOST_RANGES`](crate::filter::MOST_RANGES) long.
pub const SYMBOL_FILTERS: &str = "ipath_filters";
/// Symbol of the table of [`Schema`](crate::schema::Schema), [`crate::schema::MAX_SCHEMAS`] long.
pub const SYMBOL_SCHEMAS: &str = "ipath_schemas";
/// Symbol of the table of [`Event`](crate::counter::Event),
/// [`COUNTERS`](crate::schema::source::COUNTERS) long: the event of each of those sources.
pub const SYMBOL_COUNTERS: &str = "ipath_counters";
/// Symbol of the table of [`OwnMapping`], [`OWN_MAPPINGS`] long.
pub const SYMBOL_MAPS: &str = "ipath_maps";
/// Symbol of the number of used entries of [`SYMBOL_MAPS`], a prefix of it.
pub const SYMBOL_MAPS_USED: &str = "ipath_maps_used";
/// Symbol of a `u32` that is 1 once a stack has been seen that is not a thread's own stack.
pub const SYMBOL_COROUTINES: &str = "ipath_coroutines";
/// Symbol of the epoch of the unwind rules, a `u64`. The command owns the low 32 bits and adds
/// [`EPOCH_OF_TABLES`] to them when it has published tables. The runtime owns the high 32 bits.
pub const SYMBOL_EPOCH: &str = "ipath_epoch";

/// Symbol of the costs of probes: [`COSTS`] words, which are the runtime's `Costs`, in ticks except
/// for the cost of a stack word. They are 0 until the runtime has measured them, or the command has
/// copied them from the parent process.
pub const SYMBOL_COSTS: &str = "ipath_costs";
/// The number of words at [`SYMBOL_COSTS`].
pub const COSTS: usize = 15;

/// The command's increment of the low 32 bits of the epoch ([`SYMBOL_EPOCH`]), which may wrap
/// around. Function ids are below this value, because the runtime combines them with the epoch.
pub const EPOCH_OF_TABLES: u32 = 1 << 16;
/// The value that the runtime adds to the epoch (as one `u64`) after it has forgotten rules. It
/// counts up the high 32 bits and leaves the command's low 32 bits unchanged.
pub const EPOCH_OF_MAPS: u64 = 1 << 32;

/// First word of the alive page in the process that the session was created for.
pub const ALIVE: u64 = 0x6976_6c61_6874_6170;

/// Parameters of a session, written once before the first probe executes.
#[repr(C)]
pub struct Parameters {
    /// Address of the segment in the target.
    pub segment: AtomicU64,
    /// The id of the process in its own pid namespace. A child that shares its memory (vfork) has
    /// another one.
    pub process: AtomicU64,
    /// Maximum number of distinct paths. Calls on further paths share one path per function.
    pub max_paths: AtomicU64,
    /// Number of innermost callers to keep; 0 keeps all.
    pub depth: AtomicU64,
    /// One of [`BY_WALK`], [`BY_CALLERS`] and [`BY_CALLERS_OF_STACK`].
    pub path: AtomicU64,
    /// 1 if recursion is folded.
    pub folds: AtomicU64,
    /// The number of [`FilterRange`](crate::filter::FilterRange) in use; 0 if all paths are
    /// recorded.
    pub filters: AtomicU64,
    /// 1 if an entry must check which stack its walk has found: some paths are not recorded, or the
    /// runtime has seen coroutines.
    pub checks_stacks: AtomicU64,
    /// The number of functions that a path must pass through.
    pub filter_items: AtomicU64,
    /// Maximum number of values and phases by which calls of one path are kept apart.
    pub max_values: AtomicU64,
    /// The number of slowest calls to keep for each thread and function.
    pub slowest: AtomicU64,
    /// The number of last calls to keep for each thread and function.
    pub traced: AtomicU64,
    /// 1 if verification rejects every cached walk, to test that it does verify.
    pub distrust: AtomicU64,
    /// Bytes from the thread pointer to the 32-bit thread id, or -1 if unknown.
    pub tid_offset: AtomicI32,
    /// 0 if the first word of the thread's control block is the thread pointer, 1 if its register
    /// must be read.
    pub reads_tp: AtomicU32,
    /// 1 if programs may read the thread pointer's register.
    pub may_read_tp: AtomicU32,
    /// 1 if the runtime may make system calls. If 0 it makes none, because a system call filter
    /// could kill the program for one. It then uses the reserve and the process's maps as published
    /// by the command.
    pub system_calls: AtomicU32,
    /// 1 if the command waits for libraries, and patches their functions before their own code
    /// runs.
    pub awaits_libraries: AtomicU32,
    /// 1 if each thread is recorded separately while there is room. Otherwise a thread may continue
    /// the records of one that has ended.
    pub threads_apart: AtomicU32,
    /// Address of the loader's `r_state` (link.h), which is 0 while the list of libraries is
    /// consistent. 0 if the address is unknown.
    pub loader_state: AtomicU64,
    /// All ones if the measurement overhead is subtracted from times, else 0.
    pub corrects: AtomicU64,
    /// Factor from ticks to ns: `(ticks * scale) >> SCALE_SHIFT`, in 128-bit arithmetic.
    pub scale: AtomicU64,
    /// Factor from ns to ticks: `(ns * ticks_per_ns) >> TICKS_SHIFT`, in 128-bit arithmetic.
    pub ticks_per_ns: AtomicU64,
    /// First address of the loader's entry code, which has no unwind information: a return
    /// address in [root_start, root_end) is a root.
    pub root_start: AtomicU64,
    /// The address after the loader's entry code, see `root_start`.
    pub root_end: AtomicU64,
    /// If `system_calls` is 0, the address of zeroed, readable and writable memory for the runtime;
    /// see [`RESERVE_SHARED`].
    pub reserve: AtomicU64,
    /// Length of the reserve in bytes.
    pub reserve_len: AtomicU64,
    /// Size of the segment in bytes, if a child gets as much memory in its place; else 0.
    pub room: AtomicU64,
    /// If `system_calls` is 0, the populated length in bytes of each area of the segment.
    pub populated: [AtomicU64; AREAS],
}

/// A path is what a walk of the stack finds.
pub const BY_WALK: u64 = 0;
/// A path has the open calls of measured functions only (`--path probes`). A remembered call is
/// recorded without a walk.
pub const BY_CALLERS: u64 = 1;
/// As [`BY_CALLERS`], but the stack of each call is determined by a walk. The runtime changes to
/// this when it has seen that a thread has several stacks, or that calls end without a return.
pub const BY_CALLERS_OF_STACK: u64 = 2;

impl Parameters {
    /// Byte offset of `process`.
    pub const PROCESS: u64 = offset_of!(Self, process) as u64;
    /// Byte offset of `awaits_libraries`.
    pub const AWAITS: u64 = offset_of!(Self, awaits_libraries) as u64;
    /// Byte offset of `max_paths`.
    pub const MAX_PATHS: u64 = offset_of!(Self, max_paths) as u64;
}

/// Bytes of the reserve for each thread. Calls on further threads are missed.
pub const RESERVE_PER_THREAD: u64 = 1 << 20;
/// Bytes of the reserve for data that all threads share, and for per-thread tables that grow.
pub const RESERVE_SHARED: u64 = 32 << 20;

/// Fractional bits of [`Parameters::scale`] and of the scale of columns: up to two units per tick.
pub const SCALE_SHIFT: u32 = 63;
/// Fractional bits of [`Parameters::ticks_per_ns`].
pub const TICKS_SHIFT: u32 = 32;

/// Symbol of the address of the newest [`CopiedCode`], or 0.
pub const SYMBOL_COPIES: &str = "ipath_copies";

/// Copies of code that a signal may interrupt for long: where their instructions come from. The
/// command writes it beside the copies, followed by `count` [`CopiedPc`] by ascending address. It
/// stays as long as the session.
#[repr(C)]
pub struct CopiedCode {
    /// The address of the next older one, or 0.
    pub next: u64,
    /// First address of the copies.
    pub start: u64,
    /// The address after the copies.
    pub end: u64,
    /// The number of program counters.
    pub count: u64,
}

/// A program counter in copied code.
#[repr(C)]
pub struct CopiedPc {
    /// The program counter.
    pub at: u64,
    /// The equivalent one in the original code, in the low [`ORIGINAL_BITS`], and above them a
    /// [`Spilled`], or 0.
    pub original: u64,
}

/// A register that does not have the value of the original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spilled {
    /// The number of the register. It is not 0.
    pub register: u8,
    /// The distance from the stack pointer to the value, in bytes: a multiple of 8 from -128 to 0.
    /// If it is 0, the stack pointer of the original code is [`COPY_LOWERED`] bytes higher.
    pub saved_at: i32,
}

impl Spilled {
    /// The bits from [`ORIGINAL_BITS`] on: the register in 4 bits, and above it the distance in
    /// words.
    pub const fn encode(self) -> u64 {
        let words = (-self.saved_at / 8) as u64;
        (self.register as u64 | words << 4) << ORIGINAL_BITS
    }

    /// The value of these bits. `None` if they are 0.
    pub const fn decode(bits: u64) -> Option<Self> {
        let bits = bits >> ORIGINAL_BITS;
        if bits == 0 {
            return None;
        }
        Some(Self {
            register: (bits & 15) as u8,
            saved_at: -8 * (bits >> 4) as i32,
        })
    }
}

/// Addresses in the user's half have fewer bits (Documentation/arch/x86/x86_64/5level-paging.rst).
pub const ORIGINAL_BITS: u32 = 55;
/// Bytes by which the stack pointer is lower in a copy that has spilled a register.
pub const COPY_LOWERED: u64 = crate::arch::stack::RED_ZONE + 48;

/// Offset in bytes of the application's saved stack pointer, in the mapping of a thread's state and
/// private stack. It is valid while the thread runs on the private stack.
pub const THREAD_SAVED_SP: usize = 1024 + 32;

/// Length of the table of the runtime's mappings.
pub const OWN_MAPPINGS: usize = 16384;

/// A mapping made by the runtime. `len` is 0 if the entry is free.
#[repr(C)]
pub struct OwnMapping {
    /// First address of the mapping.
    pub address: AtomicU64,
    /// Length of the mapping in bytes; 0 if the entry is free.
    pub len: AtomicU64,
}

/// Symbol of the table of [`Trap`], [`TRAP_BUCKETS`] long.
pub const SYMBOL_TRAPS: &str = "ipath_traps";
/// Symbol of [`TrapActions`].
pub const SYMBOL_TRAP_ACTIONS: &str = "ipath_trap_actions";
/// Symbol of the handler of SIGTRAP.
pub const SYMBOL_TRAP_HANDLER: &str = "ipath_trap_handler";
/// Symbol of the code that the handler returns to.
pub const SYMBOL_TRAP_RESTORER: &str = "ipath_trap_restorer";

/// Buckets of the table of traps, a power of two.
pub const TRAP_BUCKETS: usize = 1 << TRAP_BITS;
/// The binary logarithm of [`TRAP_BUCKETS`].
pub const TRAP_BITS: u32 = 12;
/// Multiplier of the hash of a breakpoint's address. The highest bits of the product select its
/// first bucket.
pub const TRAP_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// A breakpoint and the trampoline in its place. Buckets are filled and never emptied. An address
/// is in the first bucket that was free, from its hash on.
#[repr(C)]
pub struct Trap {
    /// The address of the breakpoint; 0 while the bucket is free. Written last.
    pub address: AtomicU64,
    /// The address of the trampoline.
    pub target: AtomicU64,
}

/// The first bucket to search for a breakpoint's address.
pub const fn trap_bucket(address: u64) -> usize {
    (address.wrapping_mul(TRAP_HASH) >> (64 - TRAP_BITS)) as usize
}

/// The actions of SIGTRAP in the kernel's format (`struct sigaction` of linux/signal_types.h):
/// handler, flags, restorer, mask.
#[repr(C)]
pub struct TrapActions {
    /// The action while traps are installed.
    pub new: [AtomicU64; 4],
    /// The program's action, before traps were installed.
    pub old: [AtomicU64; 4],
}

const _: () = {
    assert!(crate::MAX_FUNCTIONS <= EPOCH_OF_TABLES as usize);
    assert!(size_of::<Trap>() == 16);
    assert!(size_of::<TrapActions>() == 64);
    assert!(size_of::<Parameters>() == 128 + 72 + 8 * AREAS);
    assert!(size_of::<OwnMapping>() == 16);
    assert!(size_of::<CopiedCode>() == 32 && size_of::<CopiedPc>() == 16);
};
