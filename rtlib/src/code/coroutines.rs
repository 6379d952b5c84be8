//! Detection of coroutines: stacks that are not a thread's own and that may move between threads.
//!
//! The outermost function of a coroutine returns to an address that follows no call. A coroutine is
//! also detected when a thread runs on a second stack.

use core::sync::atomic::{AtomicU32, Ordering};

use abi::image::{BY_CALLERS, BY_CALLERS_OF_STACK};

use super::epoch;
use crate::os::parameters::ipath_parameters;

/// 1 once a coroutine has been seen.
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_coroutines: AtomicU32 = AtomicU32::new(0);

/// True if there may be coroutines.
#[inline(always)]
pub fn are_known() -> bool {
    ipath_coroutines.load(Ordering::Relaxed) != 0
}

/// Notes that the program has coroutines. The first time, it begins another epoch if paths are cut
/// at a depth.
pub fn note() {
    // The stubs look at this first.
    ipath_parameters.checks_stacks.store(1, Ordering::Relaxed);
    let is_first = ipath_coroutines.swap(1, Ordering::Relaxed) == 0;
    distrust_callers();
    if is_first && ipath_parameters.depth.load(Ordering::Relaxed) != 0 {
        // Cut walks were cached without the words that prove the identity of their stack.
        epoch::begin();
    }
}

/// Notes that the open calls of a thread may be those of another stack, or over. If paths consist
/// of them, each call is recorded with a walk of the stack from now on.
pub fn distrust_callers() {
    let path = &ipath_parameters.path;
    let (from, to) = (BY_CALLERS, BY_CALLERS_OF_STACK);
    let order = Ordering::Relaxed;
    if path.compare_exchange(from, to, order, order).is_ok() {
        // Calls that are remembered without a walk belong to the former epoch.
        epoch::begin();
    }
}
