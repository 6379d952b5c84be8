//! Dying, stopping, being signalled and failing on purpose, for tests of what becomes of a target then. It exists
//! in the program with the feature `faults` only.

mod panics;

pub use panics::stumble;

/// A moment between two changes to the outside world, or before a wait for another command.
///
/// With the feature `faults` and `IPATH_DIE_AT=N` in the environment, the N-th of them ends this process by
/// SIGKILL, after a line on standard error that names it. With `IPATH_STOP_AT=N` it stops it by SIGSTOP. With
/// `IPATH_SIGNAL_AT=N` it is SIGINT, at that step and at each one after it. To die or to stop at, a name may be
/// given instead of the number: it means the first step of that name. With `IPATH_HANG_AT=NAME` the thread that
/// comes to that moment waits until the process ends.
#[cfg(feature = "faults")]
pub fn step(what: &str) {
    come_to(what, true);
}

/// A moment at which only something has been read: by its name alone, and not counted.
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
        // To this thread, which else would go on until another one has taken the signal.
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

/// Nothing: see the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn step(_what: &str) {}

/// Nothing: see the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn look(_what: &str) {}

/// True if writes through /proc/PID/mem are to fail as where the kernel refuses them: with the feature `faults`
/// and `IPATH_REFUSE_WRITES` in the environment.
#[cfg(feature = "faults")]
pub fn refuses_writes() -> bool {
    std::env::var_os("IPATH_REFUSE_WRITES").is_some()
}

/// Never: see the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn refuses_writes() -> bool {
    false
}
