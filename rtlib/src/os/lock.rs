//! A lock for what only slow paths touch. It is taken with signals blocked, so that nobody waits for a
//! holder underneath. Who waits sleeps (futex(2)): its holder may be a thread that does not run as long as this one
//! wants to, of a lower real-time priority on the same processor (sched(7)), and there may be thousands that wait.

use core::hint;
use core::sync::atomic::{AtomicU32, Ordering};

use super::parameters::go_quiet;
use super::sys;

/// Free where its memory is zero.
#[repr(transparent)]
pub struct Lock(AtomicU32);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may be asleep until it is free.
const AWAITED: u32 = 2;

impl Lock {
    /// One that is free.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits until it is free and takes it.
    #[inline(always)]
    pub fn lock(&self) {
        let taken = self
            .0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        /// Some seconds.
        const MOST_SPINS: u32 = 1 << 27;
        let mut spins = 0;
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            if sys::may_call() {
                sys::wait_while(&self.0, AWAITED);
                continue;
            }
            hint::spin_loop();
            spins += 1;
            if spins == MOST_SPINS {
                // Its holder has left it by a jump out of a signal handler, as no signals are blocked then, or never
                // runs as long as this one does. All of the runtime ends rather than this thread.
                go_quiet();
                return;
            }
        }
    }

    /// Gives it back; only its holder may.
    #[inline(always)]
    pub fn unlock(&self) {
        /// The number of threads to wake. Among thousands of busy threads a woken thread waits seconds for
        /// a processor. In a test, 1,000 threads slept at the lock and were busy afterwards on one
        /// processor. All passed the lock within 9 s. With one thread woken at a time, 91 passed in 15 s.
        const SOME: u32 = 8;
        if self.0.swap(FREE, Ordering::Release) == AWAITED && sys::may_call() {
            sys::wake(&self.0, SOME);
        }
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::parameters::ipath_parameters;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    #[test]
    fn one_at_a_time_and_nobody_sleeps_on() {
        const THREADS: u64 = 64;
        const ROUNDS: u64 = 2000;
        static LOCK: Lock = Lock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        ipath_parameters.system_calls.store(1, Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        LOCK.lock();
                        let count = COUNT.load(Ordering::Relaxed);
                        thread::yield_now();
                        COUNT.store(count + 1, Ordering::Relaxed);
                        LOCK.unlock();
                    }
                });
            }
        });
        assert_eq!(COUNT.load(Ordering::Relaxed), THREADS * ROUNDS);
    }
}
