//! Prefetching.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Has the line of memory at an address fetched, whatever the address.
#[inline(always)]
pub fn line<T>(at: *const T) {
    // SAFETY: a prefetch cannot fault. It is SSE's, but uses none of its registers.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}
