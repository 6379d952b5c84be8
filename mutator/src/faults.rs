//! Dying, panicking and being signalled on purpose, for tests of what is left behind: with the
//! feature `faults` alone does any of it exist in the program.

/// A moment between two changes to the outside world. With the feature `faults` and
/// `IPATH_DIE_AT=N` in the environment, the N-th of them ends this process by SIGKILL, after a
/// line on standard error that names it. With `IPATH_SIGNAL_AT=N` it is SIGINT, at that step and at
/// each one after it.
#[cfg(feature = "faults")]
pub fn step(what: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static LAST: OnceLock<(u64, u64)> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let &(last, first_signal) = LAST.get_or_init(|| {
        let number = |name| {
            let text = std::env::var(name).ok();
            text.and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
        };
        (number("IPATH_DIE_AT"), number("IPATH_SIGNAL_AT"))
    });
    let now = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if now >= first_signal {
        // SAFETY: takes no pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    }
    if now == last {
        eprintln!("dies at step {last}: {what}");
        // SAFETY: takes no pointers; ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// Nothing: see the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn step(_what: &str) {}

/// With the feature `faults` and `IPATH_PANIC_AT=WHAT` in the environment, a panic the first time
/// that the program comes here; on a thread of its own where it is `WHAT:thread`.
#[cfg(feature = "faults")]
pub fn stumble(what: &str) {
    use std::sync::atomic::{AtomicBool, Ordering};

    static DONE: AtomicBool = AtomicBool::new(false);
    let wanted = std::env::var("IPATH_PANIC_AT").unwrap_or_default();
    let (place, how) = wanted.split_once(':').unwrap_or((&wanted, ""));
    if place != what || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    match how {
        "thread" => {
            crate::tracee::tracing(|| panic!("stumbles on a thread at {place}\nand says so"))
        }
        _ => panic!("stumbles at {place}\nand says so"),
    }
}

/// Nothing: see the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn stumble(_what: &str) {}
