//! The runtime's own state: statics of the image, some of which the command writes before the
//! first probe fires (`abi::image`).

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::image::{ALIVE, FunctionSlot, MAP_SLOTS, MapSlot, Parameters};
use abi::segment::AREAS;
use abi::{MAX_FUNCTIONS, MAX_TIMERS};

use crate::modules::Modules;
use crate::registry::Registry;
use crate::rules::Rules;
use crate::slots::Slots;
use crate::tree::Buckets;

/// A page of its own, which `MADV_WIPEONFORK` empties in a forked child.
#[repr(C, align(4096))]
pub struct AlivePage(pub AtomicU64);

/// First word [`ALIVE`] in the process the session was made for, 0 in its forked children.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_alive: AlivePage = AlivePage(AtomicU64::new(0));

/// What the command sets.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_parameters: Parameters = Parameters {
    segment: AtomicU64::new(0),
    process: AtomicU64::new(0),
    max_paths: AtomicU64::new(0),
    depth: AtomicU64::new(0),
    folds: AtomicU64::new(0),
    distrust: AtomicU64::new(0),
    tid_offset: AtomicI32::new(0),
    rdfsbase: AtomicU32::new(0),
    has_rdfsbase: AtomicU32::new(0),
    // The crate's own tests may.
    system_calls: AtomicU32::new(cfg!(test) as u32),
    timers: AtomicU32::new(0),
    threads_apart: AtomicU32::new(0),
    scale: [const { AtomicU64::new(0) }; MAX_TIMERS],
    root_start: AtomicU64::new(0),
    root_end: AtomicU64::new(0),
    reserve: AtomicU64::new(0),
    reserve_len: AtomicU64::new(0),
    populated: [const { AtomicU64::new(0) }; AREAS],
};

/// Which functions are instrumented.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_functions: [FunctionSlot; MAX_FUNCTIONS] = [const {
    FunctionSlot {
        generation: AtomicU32::new(0),
        flags: AtomicU32::new(0),
    }
}; MAX_FUNCTIONS];

/// What the runtime has mapped, for the command to unmap.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_maps: [MapSlot; MAP_SLOTS] = [const {
    MapSlot {
        address: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; MAP_SLOTS];

/// Unwind rules by return address.
pub static RULES: Rules = Rules::new();
/// Threads by FS base.
pub static REGISTRY: Registry = Registry::new();
/// Executable memory and its unwind tables.
pub static MODULES: Modules = Modules::new();
/// What the records are for.
pub static SLOTS: Slots = Slots::new();
/// Hash buckets of the calling-context tree.
pub static BUCKETS: Buckets = Buckets::new();

/// Has all hooks do nothing from now on, as in a forked child.
pub fn go_quiet() {
    ipath_alive.0.store(0, Ordering::Relaxed);
}

/// Whether this process is the one the session belongs to.
#[inline(always)]
pub fn is_alive() -> bool {
    ipath_alive.0.load(Ordering::Relaxed) == ALIVE
}
