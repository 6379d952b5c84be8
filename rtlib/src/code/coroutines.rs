//! Whether the program has coroutines: stacks that are not a thread's own, and may go from thread to thread.
//!
//! One is known by where its outermost function returns to, which no call has put there, or by a thread's coming
//! to a second stack.

use core::sync::atomic::{AtomicU32, Ordering};

/// 1 once one has been seen.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_coroutines: AtomicU32 = AtomicU32::new(0);

/// Whether there may be some.
#[inline(always)]
pub fn are_known() -> bool {
    ipath_coroutines.load(Ordering::Relaxed) != 0
}

/// Notes that there are.
pub fn note() {
    ipath_coroutines.store(1, Ordering::Relaxed);
}
