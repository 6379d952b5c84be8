//! A lock for what only slow paths touch. It is taken with signals blocked, so that nobody waits for a
//! holder underneath.

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
        while self.0.swap(1, Ordering::Acquire) != 0 {
            sys::sched_yield();
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
