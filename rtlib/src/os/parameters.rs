//! What the command writes into the image before the first probe fires, and reads from it (`abi::image`).

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use abi::MAX_FUNCTIONS;
use abi::counter::Event;
use abi::image::{ALIVE, OWN_MAPPINGS, OwnMapping, Parameters};
use abi::probe::{CHILDREN_SHIFT, KIND, Kind, Probe};
use abi::schema::{ColumnRule, MAX_COLUMNS, MAX_SCHEMAS, Schema, source};
use abi::segment::AREAS;

/// A page of its own, which `MADV_WIPEONFORK` empties in a forked child.
#[repr(C, align(4096))]
pub struct AlivePage(pub AtomicU64);

/// First word [`ALIVE`] in the process the session was made for, 0 in its forked children.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_alive: AlivePage = AlivePage(AtomicU64::new(0));

/// What the command sets.
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_parameters: Parameters = Parameters {
    segment: AtomicU64::new(0),
    process: AtomicU64::new(0),
    max_paths: AtomicU64::new(0),
    depth: AtomicU64::new(0),
    folds: AtomicU64::new(0),
    distrust: AtomicU64::new(0),
    tid_offset: AtomicI32::new(0),
    reads_tp: AtomicU32::new(0),
    may_read_tp: AtomicU32::new(0),
    // The crate's own tests may.
    system_calls: AtomicU32::new(cfg!(test) as u32),
    awaits_libraries: AtomicU32::new(0),
    threads_apart: AtomicU32::new(0),
    loader_state: AtomicU64::new(0),
    corrects: AtomicU64::new(0),
    scale: AtomicU64::new(0),
    ticks_per_ns: AtomicU64::new(0),
    root_start: AtomicU64::new(0),
    root_end: AtomicU64::new(0),
    reserve: AtomicU64::new(0),
    reserve_len: AtomicU64::new(0),
    room: AtomicU64::new(0),
    populated: [const { AtomicU64::new(0) }; AREAS],
};

/// What is done at each probe.
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_probes: [Probe; MAX_FUNCTIONS] = [const {
    Probe {
        generation: AtomicU32::new(0),
        kind: AtomicU8::new(0),
        schema: AtomicU8::new(0),
        lending: AtomicU16::new(0),
    }
}; MAX_FUNCTIONS];

/// What more there is to know of some.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_details: [AtomicU64; MAX_FUNCTIONS] = [const { AtomicU64::new(0) }; MAX_FUNCTIONS];

/// What is read at probes, and what of it is recorded.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_schemas: [Schema; MAX_SCHEMAS] = [const {
    Schema {
        sources: AtomicU32::new(0),
        columns: AtomicU32::new(0),
        condition: AtomicU64::new(0),
        bound: AtomicU64::new(0),
        column: [const {
            ColumnRule {
                derived: AtomicU64::new(0),
                scale: AtomicU64::new(0),
            }
        }; MAX_COLUMNS],
    }
}; MAX_SCHEMAS];

/// Which event each counter is.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_counters: [Event; source::COUNTERS] =
    [const { Event::new([0; abi::counter::WORDS]) }; source::COUNTERS];

/// Has the crate's own tests make system calls.
#[cfg(test)]
pub fn allow_system_calls() {
    ipath_parameters.system_calls.store(1, Ordering::Relaxed);
}

/// What the runtime has mapped, for the command to unmap.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_maps: [OwnMapping; OWN_MAPPINGS] = [const {
    OwnMapping {
        address: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; OWN_MAPPINGS];

/// Entries of [`ipath_maps`] that have been in use, from the first on.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_maps_used: AtomicU64 = AtomicU64::new(0);

/// Has all hooks do nothing from now on, as in a forked child.
pub fn go_quiet() {
    ipath_alive.0.store(0, Ordering::Relaxed);
}

/// Whether what threads do is told apart.
pub fn tells_threads_apart() -> bool {
    ipath_parameters.threads_apart.load(Ordering::Relaxed) != 0
}

/// Whether this process is the one the session belongs to.
#[inline(always)]
pub fn is_alive() -> bool {
    ipath_alive.0.load(Ordering::Relaxed) == ALIVE
}

/// A row of the probe table.
#[inline(always)]
fn probe(id: u32) -> &'static Probe {
    &ipath_probes[id as usize % MAX_FUNCTIONS]
}

/// A function's generation: 0 while it is not instrumented.
#[inline(always)]
pub fn generation(id: u32) -> u32 {
    probe(id).generation.load(Ordering::Relaxed)
}

/// What a probe is for.
#[inline(always)]
pub fn kind(id: u32) -> Kind {
    Kind::of(probe(id).kind.load(Ordering::Relaxed) & KIND).unwrap_or(Kind::Entry)
}

/// Where children may come of a function: [`abi::probe::Children`].
#[inline(always)]
pub fn children(id: u32) -> u8 {
    probe(id).kind.load(Ordering::Relaxed) >> CHILDREN_SHIFT
}

/// Which schema a function is measured by.
#[inline(always)]
pub fn schema_of(id: u32) -> u8 {
    probe(id).schema.load(Ordering::Relaxed)
}

/// Whether calls of a function are measured from their entry to an exit now; `None` where it is not measured by this
/// schema. The command may change both meanwhile, at once.
#[inline(always)]
pub fn is_call_by(id: u32, schema: u8) -> Option<bool> {
    let is_by = || schema_of(id) == schema;
    if !is_by() {
        return None;
    }
    let is_call = kind(id) == Kind::Call;
    is_by().then_some(is_call)
}

/// A function's [`abi::probe::LENDING`], with [`abi::probe::LENDS`].
#[inline(always)]
pub fn lending(id: u32) -> u16 {
    probe(id).lending.load(Ordering::Relaxed)
}

/// What more there is to know of a probe.
#[inline(always)]
pub fn detail(id: u32) -> u64 {
    ipath_details[id as usize % MAX_FUNCTIONS].load(Ordering::Relaxed)
}

/// A schema.
#[inline(always)]
pub fn schema(number: u8) -> &'static Schema {
    &ipath_schemas[usize::from(number)]
}

/// The event of a counter.
#[inline(always)]
pub fn counter(number: usize) -> &'static Event {
    &ipath_counters[number % source::COUNTERS]
}
