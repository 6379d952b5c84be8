//! What the command writes into the runtime's image and reads back from it: the symbols below are
//! found by name in the image's symbol table.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::segment::AREAS;

/// Section of the image file, not loaded: the address of each fence before an exit's clock, 8
/// bytes each.
pub const FENCES: &str = "ipath_fences";
/// Symbol of the entry stub.
pub const SYMBOL_ENTRY_STUB: &str = "ipath_entry_stub";
/// Symbol of the entry stub that walks the stack again for every walk it has remembered, and ends
/// the program (SIGILL) where the two differ: for tests.
pub const SYMBOL_VERIFIED_ENTRY_STUB: &str = "ipath_verified_entry_stub";
/// Symbol of the stub for exits by a return.
pub const SYMBOL_EXIT_STUB: &str = "ipath_exit_stub";
/// Symbol of the stub for exits by a tail call, which ends the activation there.
pub const SYMBOL_TAIL_STUB: &str = "ipath_tail_stub";
/// Symbol of the stub for exits by a tail call of a function whose exits end the activation: it lends it to that.
pub const SYMBOL_LEND_STUB: &str = "ipath_lend_stub";
/// Symbol of the stub for returns of functions that are not measured, which end the activations lent to them.
pub const SYMBOL_ENDER_STUB: &str = "ipath_ender_stub";
/// Symbol of the stub for the tail calls of such functions that lead to where nothing ends them.
pub const SYMBOL_ENDER_TAIL_STUB: &str = "ipath_ender_tail_stub";
/// Symbol of the stub for points.
pub const SYMBOL_POINT_STUB: &str = "ipath_point_stub";
/// Symbol of the one that walks again as [`SYMBOL_VERIFIED_ENTRY_STUB`] does.
pub const SYMBOL_VERIFIED_POINT_STUB: &str = "ipath_verified_point_stub";
/// Symbol of the stub that does nothing.
pub const SYMBOL_IDLE_STUB: &str = "ipath_idle_stub";
/// Symbols of where probes go on that take more of the stack, on stacks that are a thread's own: for tests.
pub const SYMBOLS_AT_HOME: [&str; 2] = ["ipath_enter_at_home", "ipath_end_at_home"];
/// Symbol of [`Parameters`].
pub const SYMBOL_PARAMETERS: &str = "ipath_parameters";
/// Symbol of the page that is wiped in a forked child; its first word is [`ALIVE`] in the target.
pub const SYMBOL_ALIVE: &str = "ipath_alive";
/// Symbol of the table of [`Probe`](crate::probe::Probe), [`crate::MAX_FUNCTIONS`] long.
pub const SYMBOL_PROBES: &str = "ipath_probes";
/// Symbol of a `u64` for each row of that table: the [`values`](crate::value) of a function, or the
/// [`Standing`](crate::point::Standing) frame of a point.
pub const SYMBOL_DETAILS: &str = "ipath_details";
/// Symbol of the table of [`Schema`](crate::schema::Schema), [`crate::schema::MAX_SCHEMAS`] long.
pub const SYMBOL_SCHEMAS: &str = "ipath_schemas";
/// Symbol of the table of [`Event`](crate::counter::Event), [`COUNTERS`](crate::schema::source::COUNTERS) long: which counter each
/// of those sources is.
pub const SYMBOL_COUNTERS: &str = "ipath_counters";
/// Symbol of the table of [`OwnMapping`], [`OWN_MAPPINGS`] long.
pub const SYMBOL_MAPS: &str = "ipath_maps";
/// Symbol of how many of these have been in use, from the first on.
pub const SYMBOL_MAPS_USED: &str = "ipath_maps_used";
/// `u32`, 1 once a stack has been seen that is not a thread's own.
pub const SYMBOL_COROUTINES: &str = "ipath_coroutines";
/// `u64`, the epoch of the rules by which walks are made. Its first half is the command's, which adds
/// [`EPOCH_OF_TABLES`] to it when it has published tables; the second half is the runtime's.
pub const SYMBOL_EPOCH: &str = "ipath_epoch";

/// Symbol of what measuring takes, [`COSTS`] words, which the runtime finds out where they are 0.
pub const SYMBOL_COSTS: &str = "ipath_costs";
/// How many words that is.
pub const COSTS: usize = 11;

/// What the command adds to the epoch's first half, a `u32` that may wrap around: function ids are less.
pub const EPOCH_OF_TABLES: u32 = 1 << 16;
/// What the runtime adds to the epoch as a whole.
pub const EPOCH_OF_MAPS: u64 = 1 << 32;

/// First word of the alive page in the process the session was made for.
pub const ALIVE: u64 = 0x6976_6c61_6874_6170;

/// Parameters of a session, written once before the first probe fires.
#[repr(C)]
pub struct Parameters {
    /// Address of the segment in the target.
    pub segment: AtomicU64,
    /// The process's id in its own pid namespace. A child that shares its memory (vfork) has another.
    pub process: AtomicU64,
    /// Most distinct paths; further ones share one path per function.
    pub max_paths: AtomicU64,
    /// Innermost callers kept; 0 keeps all.
    pub depth: AtomicU64,
    /// 1 where recursion is folded.
    pub folds: AtomicU64,
    /// 1 where verifying finds every remembered walk wrong, to see that it does verify.
    pub distrust: AtomicU64,
    /// Bytes from the thread pointer to the thread id (32 bit), or -1 where it is not known.
    pub tid_offset: AtomicI32,
    /// 0 if the first word of the thread's control block is the thread pointer, 1 if its register must be read.
    pub reads_tp: AtomicU32,
    /// 1 if programs may read that register.
    pub may_read_tp: AtomicU32,
    /// 1 where the runtime may make system calls; 0 where it makes none at all, as one that a filter forbids could end
    /// the program. Then it has the reserve, and what the command has published of the process's maps.
    pub system_calls: AtomicU32,
    /// 1 where the command waits for libraries to come, and puts functions in before their own code runs.
    pub awaits_libraries: AtomicU32,
    /// 1 where no thread is to be counted as another that has ended, as long as there is room.
    pub threads_apart: AtomicU32,
    /// Where the loader says what becomes of its list of libraries (`r_state` of link.h): 0 there where that is whole. 0 where
    /// that is not known.
    pub loader_state: AtomicU64,
    /// All ones where times are without what measuring takes, else 0.
    pub corrects: AtomicU64,
    /// Ticks to ns: `(ticks * scale) >> SCALE_SHIFT`, over 128 bits.
    pub scale: AtomicU64,
    /// ns to ticks: `(ns * ticks_per_ns) >> TICKS_SHIFT`, over 128 bits.
    pub ticks_per_ns: AtomicU64,
    /// First address of the loader's entry code, which has no unwind information: a return
    /// address in [root_start, root_end) is a root.
    pub root_start: AtomicU64,
    /// See `root_start`.
    pub root_end: AtomicU64,
    /// Where `system_calls` is 0: memory of the runtime's own, readable and writable, zeroes; see [`RESERVE_SHARED`].
    pub reserve: AtomicU64,
    /// Its bytes.
    pub reserve_len: AtomicU64,
    /// Bytes of the segment, for a child to have as much memory in its place; 0 where it shall not.
    pub room: AtomicU64,
    /// Where `system_calls` is 0: bytes of each area of the segment that have memory, from its start on.
    pub populated: [AtomicU64; AREAS],
}

impl Parameters {
    /// Bytes from the start to `process`.
    pub const PROCESS: u64 = offset_of!(Self, process) as u64;
    /// Bytes from the start to `awaits_libraries`.
    pub const AWAITS: u64 = offset_of!(Self, awaits_libraries) as u64;
    /// Bytes from the start to `max_paths`.
    pub const MAX_PATHS: u64 = offset_of!(Self, max_paths) as u64;
}

/// Bytes of the reserve that each thread takes; calls on threads beyond are missed.
pub const RESERVE_PER_THREAD: u64 = 1 << 20;
/// Bytes of the reserve for what all threads share, and for tables of threads that grow.
pub const RESERVE_SHARED: u64 = 32 << 20;

/// Fractional bits of [`Parameters::scale`], and of those of columns: up to two units a tick.
pub const SCALE_SHIFT: u32 = 63;
/// Fractional bits of [`Parameters::ticks_per_ns`].
pub const TICKS_SHIFT: u32 = 32;

/// Bytes from the start of a mapping that holds a thread's state and private stack to where the
/// application's stack pointer stands while the thread runs on that stack.
pub const THREAD_SAVED_SP: usize = 1024 + 32;

/// Length of the table of mappings.
pub const OWN_MAPPINGS: usize = 16384;

/// A mapping the runtime made itself; `len` 0 when free.
#[repr(C)]
pub struct OwnMapping {
    /// First address.
    pub address: AtomicU64,
    /// Bytes.
    pub len: AtomicU64,
}

/// Symbol of the table of [`Trap`], [`TRAP_BUCKETS`] long.
pub const SYMBOL_TRAPS: &str = "ipath_traps";
/// Symbol of [`TrapActions`].
pub const SYMBOL_TRAP_ACTIONS: &str = "ipath_trap_actions";
/// Symbol of the handler of SIGTRAP.
pub const SYMBOL_TRAP_HANDLER: &str = "ipath_trap_handler";
/// Symbol of what the handler returns to.
pub const SYMBOL_TRAP_RESTORER: &str = "ipath_trap_restorer";

/// Buckets of the table of traps, a power of two.
pub const TRAP_BUCKETS: usize = 1 << TRAP_BITS;
/// Its logarithm.
pub const TRAP_BITS: u32 = 12;
/// What an address is multiplied with; the product's highest bits are its first bucket.
pub const TRAP_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// A breakpoint and the trampoline that stands for it. Buckets are filled, never emptied; an address
/// is in the first free one from its hash on.
#[repr(C)]
pub struct Trap {
    /// Where the breakpoint is; 0 while free. Written last.
    pub address: AtomicU64,
    /// The trampoline.
    pub target: AtomicU64,
}

/// The bucket an address is first looked for in.
pub const fn trap_bucket(address: u64) -> usize {
    (address.wrapping_mul(TRAP_HASH) >> (64 - TRAP_BITS)) as usize
}

/// What SIGTRAP does, as the kernel has it (`struct sigaction` of linux/signal_types.h): handler,
/// flags, restorer, mask.
#[repr(C)]
pub struct TrapActions {
    /// While traps are in.
    pub new: [AtomicU64; 4],
    /// Before.
    pub old: [AtomicU64; 4],
}

const _: () = {
    assert!(crate::MAX_FUNCTIONS <= EPOCH_OF_TABLES as usize);
    assert!(size_of::<Trap>() == 16);
    assert!(size_of::<TrapActions>() == 64);
    assert!(size_of::<Parameters>() == 96 + 48 + 8 * AREAS);
    assert!(size_of::<OwnMapping>() == 16);
};
