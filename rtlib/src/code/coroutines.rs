//! Whether the program has coroutines: stacks that are not a thread's own, and may go from thread to thread.
//!
//! One is known by where its outermost function returns to, which no call has put there, or by a thread's coming
//! to a second stack.

use core::sync::atomic::{AtomicU32, Ordering};

use super::epoch;
use crate::os::parameters::ipath_parameters;

/// 1 once one has been seen.
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_coroutines: AtomicU32 = AtomicU32::new(0);

/// Whether there may be some.
#[inline(always)]
pub fn are_known() -> bool {
    ipath_coroutines.load(Ordering::Relaxed) != 0
}

/// Notes that there are.
pub fn note() {
    let is_first = ipath_coroutines.swap(1, Ordering::Relaxed) == 0;
    if is_first && ipath_parameters.depth.load(Ordering::Relaxed) != 0 {
        // Cut walks are remembered without the words that prove the identity of their stack.
        epoch::begin();
    }
}
