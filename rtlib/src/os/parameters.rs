//! What the command writes into the image before the first probe fires, and reads from it (`abi::image`).

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::image::{ALIVE, FunctionState, OWN_MAPPINGS, OwnMapping, Parameters};
use abi::segment::AREAS;
use abi::{MAX_FUNCTIONS, MAX_TIMERS};

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
pub static ipath_functions: [FunctionState; MAX_FUNCTIONS] = [const {
    FunctionState {
        generation: AtomicU32::new(0),
        flags: AtomicU32::new(0),
    }
}; MAX_FUNCTIONS];

/// What the runtime has mapped, for the command to unmap.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_maps: [OwnMapping; OWN_MAPPINGS] = [const {
    OwnMapping {
        address: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; OWN_MAPPINGS];

/// Has all hooks do nothing from now on, as in a forked child.
pub fn go_quiet() {
    ipath_alive.0.store(0, Ordering::Relaxed);
}

/// Whether this process is the one the session belongs to.
#[inline(always)]
pub fn is_alive() -> bool {
    ipath_alive.0.load(Ordering::Relaxed) == ALIVE
}

/// What the command has set of a function.
#[inline(always)]
fn function(id: u32) -> &'static FunctionState {
    &ipath_functions[id as usize % MAX_FUNCTIONS]
}

/// A function's generation: 0 while it is not instrumented.
#[inline(always)]
pub fn generation(id: u32) -> u32 {
    function(id).generation.load(Ordering::Relaxed)
}

/// A function's flags: [`abi::image::FUNCTION_EXITS`] and so on.
#[inline(always)]
pub fn flags(id: u32) -> u32 {
    function(id).flags.load(Ordering::Relaxed)
}
