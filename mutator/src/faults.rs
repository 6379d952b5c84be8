//! Dying on purpose, for tests of what is left behind: with the feature `faults` alone does any of
//! it exist in the program.

/// A moment between two changes to the outside world. With the feature `faults` and
/// `IPATH_DIE_AT=N` in the environment, the N-th of them ends this process by SIGKILL, after a
/// line on standard error that names it.
#[cfg(feature = "faults")]
pub fn step(what: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static LAST: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let last = *LAST.get_or_init(|| {
        let text = std::env::var("IPATH_DIE_AT").ok();
        text.and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
    });
    if COUNT.fetch_add(1, Ordering::Relaxed) + 1 == last {
        eprintln!("dies at step {last}: {what}");
        // SAFETY: takes no pointers; ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// Nothing: see the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn step(_what: &str) {}
