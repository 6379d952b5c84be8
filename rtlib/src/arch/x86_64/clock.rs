//! The time-stamp counter.

use core::arch::x86_64::_rdtsc;

/// The current value, in ticks.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: reads a counter.
    unsafe { _rdtsc() }
}
