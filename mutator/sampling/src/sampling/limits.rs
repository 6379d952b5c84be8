//! How many threads can be looked at at once: each takes two descriptors, and memory that is locked for its ring.

use std::fs;

/// Bytes of all rings.
const RINGS: usize = 128 << 20;
/// Descriptors that are left for what else there is to do.
const SPARE: usize = 64;
/// Of what a user may lock in memory, this remains for other programs of his.
const FOR_OTHERS: usize = 4;

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Threads at once.
    pub(super) threads: usize,
    /// Bytes of their rings.
    pub(super) memory: usize,
}

impl Limits {
    /// What there is room for here.
    pub(super) fn here() -> Self {
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let descriptors = raise(libc::RLIMIT_NOFILE).saturating_sub(open + SPARE);
        Self {
            threads: (descriptors / 2).max(1),
            memory: memory().min(RINGS),
        }
    }
}

/// Bytes of rings that this user may have (kernel/events/core.c, perf_mmap): so many for each processor, and what may be
/// locked in memory beside them.
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

/// True if this process may lock as much memory as it wants.
fn has_cap_ipc_lock() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let bits = line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// Raises a limit as far as this process may; what it is then.
fn raise(resource: libc::__rlimit_resource_t) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes the limit alone. Where it stays as it is, fewer threads can be looked at.
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
