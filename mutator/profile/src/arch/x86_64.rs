//! x86-64.

/// The value of the time-stamp counter now, in ticks.
pub fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
