//! Fault injection: dies, stops, raises signals and fails on purpose, to test the effect on a
//! target. Only builds with the feature `faults` contain it.

mod panics;

pub use panics::stumble;

/// A step between two changes to the outside world, or before a wait for another command.
///
/// With the feature `faults`, these environment variables act on steps:
///
/// * `IPATH_DIE_AT=N` ends this process by SIGKILL at step N, after a line on standard error that
///   names the step.
/// * `IPATH_STOP_AT=N` stops this process by SIGSTOP at step N.
/// * `IPATH_SIGNAL_AT=N` sends it SIGINT at step N and at each later one.
/// * `IPATH_HANG_AT=NAME` makes the thread that reaches the step wait until the process ends.
///
/// `IPATH_DIE_AT` and `IPATH_STOP_AT` also take a name, which means the first step of that name.
#[cfg(feature = "faults")]
pub fn step(what: &str) {
    come_to(what, true);
}

/// A point between reads. It matches by name only and does not count as a step.
#[cfg(feature = "faults")]
pub fn look(what: &str) {
    come_to(what, false);
}

#[cfg(feature = "faults")]
fn come_to(what: &str, is_change: bool) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    struct At {
        number: Option<u64>,
        name: String,
        done: AtomicBool,
    }
    static PLACES: OnceLock<[At; 4]> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let at = |name| {
        let name = std::env::var(name).unwrap_or_default();
        let (number, done) = (name.parse().ok(), AtomicBool::new(false));
        At { number, name, done }
    };
    const NAMES: [&str; 4] = [
        "IPATH_DIE_AT",
        "IPATH_STOP_AT",
        "IPATH_SIGNAL_AT",
        "IPATH_HANG_AT",
    ];
    let [dies, stops, signals, hangs] = PLACES.get_or_init(|| NAMES.map(at));
    let now = match is_change {
        true => COUNT.fetch_add(1, Ordering::Relaxed) + 1,
        false => COUNT.load(Ordering::Relaxed),
    };
    let is_at = |at: &At| match at.number {
        Some(number) => is_change && number == now,
        None => at.name == what && !at.done.swap(true, Ordering::Relaxed),
    };
    if is_change && signals.number.is_some_and(|from| now >= from) {
        // SAFETY: takes no pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    }
    if is_at(dies) {
        eprintln!("dies at step {now}: {what}");
        // SAFETY: takes no pointers; ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    if is_at(stops) {
        eprintln!("stops at step {now}: {what}");
        // Sent to this thread. A signal to the process would let this thread run on until another
        // one has taken it.
        // SAFETY: takes no pointers; stops this process until it is continued.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
    if is_at(hangs) {
        eprintln!("hangs at step {now}: {what}");
        loop {
            std::thread::park();
        }
    }
}

/// Does nothing without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn step(_what: &str) {}

/// Does nothing without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn look(_what: &str) {}

/// True if writes through /proc/PID/mem must fail as if the kernel had refused them: with the
/// feature `faults` and `IPATH_REFUSE_WRITES` in the environment.
#[cfg(feature = "faults")]
pub fn refuses_writes() -> bool {
    std::env::var_os("IPATH_REFUSE_WRITES").is_some()
}

/// Always false without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn refuses_writes() -> bool {
    false
}
