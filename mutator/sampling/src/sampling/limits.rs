//! The number of threads that can be sampled at once. Each takes two descriptors, and locked memory
//! for its ring.

use std::fs;

/// The maximum size of all rings, in bytes.
const RINGS: usize = 128 << 20;
/// Descriptors reserved for other uses.
const SPARE: usize = 64;
/// One part in this many of a user's lockable memory is left for other programs.
const FOR_OTHERS: usize = 4;

/// The maximum number of threads that can be sampled at once, and the memory for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The maximum number of threads at once.
    pub(super) threads: usize,
    /// The maximum total size of their rings, in bytes.
    pub(super) memory: usize,
}

impl Limits {
    /// The limits of this process. Raises its limits of descriptors and of locked memory as far as
    /// possible.
    pub(super) fn here() -> Self {
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let descriptors = raise(libc::RLIMIT_NOFILE).saturating_sub(open + SPARE);
        Self {
            threads: (descriptors / 2).max(1),
            memory: memory().min(RINGS),
        }
    }
}

/// The total size in bytes of the rings that this user may have (kernel/events/core.c, perf_mmap):
/// a number of bytes per processor, and the limit of locked memory in addition.
fn memory() -> usize {
    let number = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.ok()?.trim().parse::<i64>().ok()
    };
    if has_cap_ipc_lock() || number("perf_event_paranoid") == Some(-1) {
        return RINGS;
    }
    let for_each = number("perf_event_mlock_kb").unwrap_or(0).max(0) as usize;
    // SAFETY: takes a number and no pointer.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let all = (for_each << 10)
        .saturating_mul(processors)
        .saturating_add(raise(libc::RLIMIT_MEMLOCK));
    all - all / FOR_OTHERS
}

/// True if this process may lock unlimited memory. False also if that is unknown.
fn has_cap_ipc_lock() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let bits = line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// Raises a soft limit of this process to its hard limit. Returns the soft limit afterwards; 0 if
/// it cannot be read.
fn raise(resource: libc::__rlimit_resource_t) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: only reads and writes the limit. If it stays the same, fewer threads can be sampled.
    unsafe {
        if libc::getrlimit(resource, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            let before = limit.rlim_cur;
            limit.rlim_cur = limit.rlim_max;
            if libc::setrlimit(resource, &limit) != 0 {
                limit.rlim_cur = before;
            }
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
