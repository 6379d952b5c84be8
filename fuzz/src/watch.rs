//! A thread that ends the run if a case has used up its processor time. It measures the time of the
//! case's own thread, so the load of the machine does not matter.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use crate::corpus;

/// The processor time that a case may use, in nanoseconds. Unoptimized code takes longer.
const MAX_CPU_NS: u64 = if cfg!(debug_assertions) {
    10_000_000_000
} else {
    1_000_000_000
};

struct Shared {
    /// The number of the case, from 1. 0 between cases.
    case: AtomicU64,
    /// The processor time at its start, in nanoseconds.
    begun: AtomicU64,
    is_over: AtomicU64,
    input: std::sync::Mutex<Vec<u8>>,
}

/// Watches the cases of the thread that created it.
pub(crate) struct Watch(Arc<Shared>);

impl Watch {
    pub(crate) fn new(target: &'static str, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            case: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            is_over: AtomicU64::new(0),
            input: std::sync::Mutex::default(),
        });
        let of_case = clock_of_this_thread();
        let watched = Arc::clone(&shared);
        std::thread::spawn(move || {
            while watched.is_over.load(SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(100));
                let (case, begun) = (watched.case.load(SeqCst), watched.begun.load(SeqCst));
                let used = time_of(of_case).saturating_sub(begun);
                if case == 0 || used < MAX_CPU_NS || watched.case.load(SeqCst) != case {
                    continue;
                }
                let input = watched.input.lock().map(|i| i.clone()).unwrap_or_default();
                let kept = corpus::keep(target, seed, case - 1, &input);
                eprintln!(
                    "{target}: case {} has run for {used} ns: {}",
                    case - 1,
                    kept.display()
                );
                std::process::abort();
            }
        });
        Self(shared)
    }

    pub(crate) fn begin(&self, case: u64, input: &[u8]) {
        if let Ok(mut kept) = self.0.input.lock() {
            kept.clear();
            kept.extend_from_slice(input);
        }
        self.0.begun.store(time_of(clock_of_this_thread()), SeqCst);
        self.0.case.store(case + 1, SeqCst);
    }

    pub(crate) fn end(&self) {
        self.0.case.store(0, SeqCst);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.is_over.store(1, Relaxed);
    }
}

fn clock_of_this_thread() -> libc::clockid_t {
    let mut clock = libc::CLOCK_MONOTONIC;
    // SAFETY: writes a clock id; this thread is alive.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    clock
}

fn time_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the given struct.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}
