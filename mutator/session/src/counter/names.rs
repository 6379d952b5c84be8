//! perf's names of events that every processor has, and of raw events (perf-list(1)).

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_BRANCH_INSTRUCTIONS, PERF_COUNT_HW_BRANCH_MISSES, PERF_COUNT_HW_BUS_CYCLES,
    PERF_COUNT_HW_CACHE_BPU, PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_ITLB,
    PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_L1I, PERF_COUNT_HW_CACHE_LL,
    PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_CACHE_NODE, PERF_COUNT_HW_CACHE_OP_PREFETCH,
    PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_OP_WRITE, PERF_COUNT_HW_CACHE_REFERENCES,
    PERF_COUNT_HW_CACHE_RESULT_ACCESS, PERF_COUNT_HW_CACHE_RESULT_MISS, PERF_COUNT_HW_CPU_CYCLES,
    PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_REF_CPU_CYCLES, PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW,
};

/// Names of hardware events, with their `config`.
const HARDWARE: [(&str, u32); 14] = [
    ("cycles", PERF_COUNT_HW_CPU_CYCLES),
    ("cpu-cycles", PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", PERF_COUNT_HW_CACHE_MISSES),
    ("branches", PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-instructions", PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", PERF_COUNT_HW_BUS_CYCLES),
    ("ref-cycles", PERF_COUNT_HW_REF_CPU_CYCLES),
    (
        "stalled-cycles-frontend",
        PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        "idle-cycles-frontend",
        PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        "stalled-cycles-backend",
        PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    ),
    ("idle-cycles-backend", PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
];

/// One name for each event that perf defines for all processors, and for some events of caches.
pub(super) const GENERAL: [&str; 15] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "ref-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
    "LLC-load-misses",
    "dTLB-load-misses",
    "iTLB-load-misses",
];

/// The type of an event, and its config.
type Config = (u32, u64);

/// The configuration for names such as `instructions`. `None` for other names.
pub(super) fn hardware(name: &str) -> Option<Config> {
    let (_, config) = HARDWARE.iter().find(|(known, _)| *known == name)?;
    Some((PERF_TYPE_HARDWARE, u64::from(*config)))
}

/// Beginnings of names of cache events, with the number of the cache.
const CACHES: [(&str, u32); 7] = [
    ("L1-dcache-", PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache-", PERF_COUNT_HW_CACHE_L1I),
    ("LLC-", PERF_COUNT_HW_CACHE_LL),
    ("dTLB-", PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB-", PERF_COUNT_HW_CACHE_ITLB),
    ("branch-", PERF_COUNT_HW_CACHE_BPU),
    ("node-", PERF_COUNT_HW_CACHE_NODE),
];

/// Ends of names of cache events, for all accesses and for misses, with the number of the
/// operation.
const OPERATIONS: [(&str, &str, u32); 3] = [
    ("loads", "load-misses", PERF_COUNT_HW_CACHE_OP_READ),
    ("stores", "store-misses", PERF_COUNT_HW_CACHE_OP_WRITE),
    (
        "prefetches",
        "prefetch-misses",
        PERF_COUNT_HW_CACHE_OP_PREFETCH,
    ),
];

/// The configuration for names such as `L1-dcache-load-misses`: a cache, an operation, and either
/// all accesses or the misses. `None` for other names.
pub(super) fn cache(name: &str) -> Option<Config> {
    let known = |(prefix, cache): &(&str, u32)| Some((name.strip_prefix(prefix)?, *cache));
    let (rest, cache) = CACHES.iter().find_map(known)?;
    let of = |&(all, misses, operation): &(&str, &str, u32)| match rest {
        rest if rest == all => Some((operation, PERF_COUNT_HW_CACHE_RESULT_ACCESS)),
        rest if rest == misses => Some((operation, PERF_COUNT_HW_CACHE_RESULT_MISS)),
        _ => None,
    };
    let (operation, result) = OPERATIONS.iter().find_map(of)?;
    let config = cache | operation << 8 | result << 16;
    Some((PERF_TYPE_HW_CACHE, u64::from(config)))
}

/// The configuration for names such as `r01c2`: a number that only this processor defines. `None`
/// for other names.
pub(super) fn raw(name: &str) -> Option<Config> {
    let digits = name.strip_prefix('r')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let config = u64::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
    Some((PERF_TYPE_RAW, config))
}

/// True for events that the kernel counts by itself, such as `cpu-clock`.
pub(super) fn is_of_kernel(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "cpu-clock",
        "task-clock",
        "minor-faults",
        "major-faults",
        "cpu-migrations",
        "migrations",
        "alignment-faults",
        "emulation-faults",
        "dummy",
        "bpf-output",
        "cgroup-switches",
    ];
    NAMES.contains(&name)
}
