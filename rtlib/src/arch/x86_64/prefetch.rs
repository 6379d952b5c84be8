//! Prefetching.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Prefetches the cache line at an address, which may be invalid.
#[inline(always)]
pub fn line<T>(at: *const T) {
    // SAFETY: a prefetch cannot fault. It belongs to SSE, but uses no SSE register.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}
