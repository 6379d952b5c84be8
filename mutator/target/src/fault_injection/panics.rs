//! Panicking on purpose, for tests of what becomes of a target then ([`crate::fault_injection`]).

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
