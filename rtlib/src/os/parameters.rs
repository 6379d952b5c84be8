//! The parts of the image that the command writes before the first probe executes, and reads
//! (`abi::image`).

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use abi::MAX_FUNCTIONS;
use abi::count::{BANKS, Bank, SHARED};
use abi::counter::Event;
use abi::image::{ALIVE, BY_WALK, OWN_MAPPINGS, OwnMapping, Parameters};
use abi::path::{FRAME_SLOTS, SLOTS, Slot, Slots};
use abi::probe::{CHILDREN, CHILDREN_SHIFT, KIND, Kind, PHASE, Probe, SPAN};
use abi::schema::{ColumnRule, MAX_COLUMNS, MAX_SCHEMAS, Schema, source};
use abi::segment::AREAS;

/// A separate page, which `MADV_WIPEONFORK` zeroes in a forked child.
#[repr(C, align(4096))]
pub struct AlivePage([Bank; BANKS]);

impl AlivePage {
    /// The banks of counters.
    #[inline(always)]
    pub fn banks(&self) -> &[Bank; BANKS] {
        &self.0
    }

    /// [`ALIVE`] in the process that the session was created for, and 0 in its forked children.
    fn word(&self) -> &AtomicU64 {
        &self.0[SHARED].owner
    }
}

/// The banks of counters. The owner of the shared one is [`ALIVE`] in the process that the session
/// was created for, and 0 in its forked children.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_alive: AlivePage = AlivePage(
    [const {
        Bank {
            owner: AtomicU64::new(0),
            at: AtomicU64::new(0),
        }
    }; BANKS],
);

/// The slots of activations that are on a path.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_paths: Slots = Slots {
    of_frames: [const { Slot::new() }; FRAME_SLOTS],
    others: [const { Slot::new() }; SLOTS],
};

/// The parameters of the session, set by the command.
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_parameters: Parameters = Parameters {
    segment: AtomicU64::new(0),
    process: AtomicU64::new(0),
    max_paths: AtomicU64::new(0),
    depth: AtomicU64::new(0),
    path: AtomicU64::new(0),
    folds: AtomicU64::new(0),
    filters: AtomicU64::new(0),
    checks_stacks: AtomicU64::new(0),
    filter_items: AtomicU64::new(0),
    max_values: AtomicU64::new(0),
    slowest: AtomicU64::new(0),
    traced: AtomicU64::new(0),
    distrust: AtomicU64::new(0),
    tid_offset: AtomicI32::new(0),
    reads_tp: AtomicU32::new(0),
    may_read_tp: AtomicU32::new(0),
    // The crate's own tests may make system calls.
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

/// The table of probes.
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

/// Further details of some probes: [`abi::image::SYMBOL_DETAILS`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_details: [AtomicU64; MAX_FUNCTIONS] = [const { AtomicU64::new(0) }; MAX_FUNCTIONS];

/// The table of schemas.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_schemas: [Schema; MAX_SCHEMAS] = [const {
    Schema {
        sources: AtomicU32::new(0),
        columns: AtomicU32::new(0),
        condition: AtomicU64::new(0),
        bound: AtomicU64::new(0),
        by: AtomicU64::new(0),
        long: AtomicU64::new(0),
        single: AtomicU64::new(0),
        column: [const {
            ColumnRule {
                derived: AtomicU64::new(0),
                scale: AtomicU64::new(0),
            }
        }; MAX_COLUMNS],
    }
}; MAX_SCHEMAS];

/// The event of each counter.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_counters: [Event; source::COUNTERS] =
    [const { Event::new([0; abi::counter::WORDS]) }; source::COUNTERS];

/// Allows system calls in the crate's own tests.
#[cfg(test)]
pub fn allow_system_calls() {
    ipath_parameters.system_calls.store(1, Ordering::Relaxed);
}

/// The mappings made by the runtime, for the command to unmap.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_maps: [OwnMapping; OWN_MAPPINGS] = [const {
    OwnMapping {
        address: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; OWN_MAPPINGS];

/// Length of the used prefix of [`ipath_maps`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_maps_used: AtomicU64 = AtomicU64::new(0);

/// Makes all hooks do nothing from now on, as in a forked child.
pub fn go_quiet() {
    ipath_alive.word().store(0, Ordering::Relaxed);
}

/// True if paths consist of measured functions only.
#[inline(always)]
pub fn is_by_callers() -> bool {
    ipath_parameters.path.load(Ordering::Relaxed) != BY_WALK
}

/// True if each thread is recorded separately.
pub fn tells_threads_apart() -> bool {
    ipath_parameters.threads_apart.load(Ordering::Relaxed) != 0
}

/// True if this is the process that the session belongs to, unless [`go_quiet`] was called.
#[inline(always)]
pub fn is_alive() -> bool {
    ipath_alive.word().load(Ordering::Relaxed) == ALIVE
}

/// Row `id` of the probe table, modulo its length.
#[inline(always)]
fn probe(id: u32) -> &'static Probe {
    &ipath_probes[id as usize % MAX_FUNCTIONS]
}

/// The generation of the probe with this id ([`Probe::generation`]): 0 while it is removed.
#[inline(always)]
pub fn generation(id: u32) -> u32 {
    probe(id).generation.load(Ordering::Relaxed)
}

/// The kind of the probe with this id.
#[inline(always)]
pub fn kind(id: u32) -> Kind {
    Kind::of(probe(id).kind.load(Ordering::Relaxed) & KIND).unwrap_or(Kind::Entry)
}

/// The calls of function `id` that may create children: a value of [`abi::probe::Children`].
#[inline(always)]
pub fn children(id: u32) -> u8 {
    (probe(id).kind.load(Ordering::Relaxed) & CHILDREN) >> CHILDREN_SHIFT
}

/// True for the row of a span.
#[inline(always)]
pub fn is_span(id: u32) -> bool {
    probe(id).kind.load(Ordering::Relaxed) & SPAN != 0
}

/// True if each call of function `id` is a phase.
#[inline(always)]
pub fn is_phase(id: u32) -> bool {
    probe(id).kind.load(Ordering::Relaxed) & PHASE != 0
}

/// The number of the schema by which function `id` is measured.
#[inline(always)]
pub fn schema_of(id: u32) -> u8 {
    probe(id).schema.load(Ordering::Relaxed)
}

/// True if calls of function `id` are currently measured from entry to exit; `None` if the function
/// has another schema than `schema`. The command may change kind and schema concurrently, in one
/// store.
#[inline(always)]
pub fn is_call_by(id: u32, schema: u8) -> Option<bool> {
    let is_by = || schema_of(id) == schema;
    if !is_by() {
        return None;
    }
    let is_call = kind(id) == Kind::Call;
    is_by().then_some(is_call)
}

/// The group number of function `id` ([`abi::probe::LENDING`]), with the flag
/// [`abi::probe::LENDS`].
#[inline(always)]
pub fn lending(id: u32) -> u16 {
    probe(id).lending.load(Ordering::Relaxed)
}

/// The details of the probe with this id: its word of [`ipath_details`].
#[inline(always)]
pub fn detail(id: u32) -> u64 {
    ipath_details[id as usize % MAX_FUNCTIONS].load(Ordering::Relaxed)
}

/// The schema with this number.
#[inline(always)]
pub fn schema(number: u8) -> &'static Schema {
    &ipath_schemas[usize::from(number)]
}

/// The event of the counter with this number, counted from 0.
#[inline(always)]
pub fn counter(number: usize) -> &'static Event {
    &ipath_counters[number % source::COUNTERS]
}
