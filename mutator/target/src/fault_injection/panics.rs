//! Panics on purpose, to test the effect on a target ([`crate::fault_injection`]).

/// With the feature `faults` and `IPATH_PANIC_AT=WHAT` in the environment, panics at the first call
/// with this name. With `IPATH_PANIC_AT=WHAT:thread` the tracer thread panics.
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

/// Does nothing without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn stumble(_what: &str) {}
