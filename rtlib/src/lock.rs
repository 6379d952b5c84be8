//! A lock for what only slow paths touch. It is taken with signals blocked, so that nobody waits for a
//! holder underneath. Its holder may be a thread that does not run as long as this one wants to, of a lower
//! real-time priority on the same processor (sched(7)): to yield is not enough then.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Free where its memory is zero.
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    /// One that is free.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits until it is free and takes it.
    pub fn lock(&self) {
        /// After so many yields the holder is let run whatever its priority.
        const YIELDS: u32 = 16;
        let mut yields = 0;
        while self.0.swap(1, Ordering::Acquire) != 0 {
            if yields < YIELDS {
                sys::sched_yield();
                yields += 1;
            } else {
                sys::sleep_briefly();
            }
        }
    }

    /// Gives it back; only its holder may.
    pub fn unlock(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}
