//! A lock for slow paths. It is taken with signals blocked, so that a signal handler never waits
//! for the code that it interrupted. Waiting threads sleep (futex(2)). A spinning thread could keep
//! a holder with a lower real-time priority off its processor (sched(7)), and thousands of threads
//! may wait.

use core::hint;
use core::sync::atomic::{AtomicU32, Ordering};

use super::parameters::go_quiet;
use super::sys;

/// A lock, free if its memory is zero.
#[repr(transparent)]
pub struct Lock(AtomicU32);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// The state of a lock that is held, while other threads may be asleep waiting for it.
const AWAITED: u32 = 2;

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits until the lock is free and takes it. If system calls are not allowed, it gives up
    /// after a few seconds: it calls [`go_quiet`] and returns, although another thread may hold the
    /// lock.
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
        /// The maximum number of rounds of waiting, which take a few seconds.
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
                // Signals are not blocked in this case, so a jump out of a signal handler may have
                // left the lock held. Or its holder does not run while this thread does. The
                // runtime stops, so that the program does not hang.
                go_quiet();
                return;
            }
        }
    }

    /// Releases the lock. Only its holder may call this.
    #[inline(always)]
    pub fn unlock(&self) {
        /// The number of threads to wake. Among thousands of busy threads a woken thread waits
        /// seconds for a processor. In a test, 1,000 threads slept at the lock and were busy
        /// afterwards on one processor. All passed the lock within 9 s. With one thread woken at a
        /// time, 91 passed in 15 s.
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
