//! Which paths are recorded (`--under`, `--not-under`).
//!
//! The words of a remembered walk determine its path, so they determine this, too: it is decided
//! once for each remembered walk.

use core::sync::atomic::Ordering;

use abi::filter::{EXCLUDED, FilterRange, MOST_RANGES};
use abi::segment::ROOT_COMPLETE;

use super::path::Path;
use crate::os::parameters::ipath_parameters;

/// The code of the functions that paths must pass through, or must not.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_filters: [FilterRange; MOST_RANGES] = [const { FilterRange::new() }; MOST_RANGES];

/// In place of the identity of a stack: calls with this walk are not recorded. No stack has it.
pub const ELSEWHERE: u64 = 1;

/// True if only some paths are recorded.
#[inline(always)]
pub fn is_on() -> bool {
    ipath_parameters.filters.load(Ordering::Relaxed) != 0
}

/// The number of ranges in use.
#[inline(always)]
fn used() -> usize {
    (ipath_parameters.filters.load(Ordering::Relaxed) as usize).min(MOST_RANGES)
}

/// The number of no range.
const NONE: usize = usize::MAX;

/// The number of the range of this item that contains `at` and is within the range `within`, if
/// that is not [`NONE`]. `NONE` if there is no such range. A separate function without a frame, so
/// that its caller uses less of the stack.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn range_of(item: u32, at: u64, within: usize) -> usize {
    for (number, range) in ipath_filters.iter().enumerate().take(used()) {
        let start = range.start.load(Ordering::Relaxed);
        let end = range.end.load(Ordering::Relaxed);
        if range.item.load(Ordering::Relaxed) == item && start <= at && at < end {
            let is_inside = match ipath_filters.get(within) {
                Some(outer) => {
                    outer.start.load(Ordering::Relaxed) <= start
                        && end <= outer.end.load(Ordering::Relaxed)
                }
                None => true,
            };
            if is_inside {
                return number;
            }
        }
    }
    NONE
}

/// True if calls on a path are recorded. Those on an incomplete path are, unless one of its frames
/// excludes it: nobody knows what its other frames are.
///
/// # Safety
/// The path is the last one of its walker.
#[inline(always)]
pub unsafe fn admits(path: &Path) -> bool {
    let items = ipath_parameters.filter_items.load(Ordering::Relaxed) as u32;
    let mut item = 0;
    for index in (0..path.walk.len as usize).rev() {
        // SAFETY: below the length; guaranteed by the caller.
        let at = unsafe { path.frame(index) }.wrapping_sub(1);
        if range_of(EXCLUDED, at, NONE) != NONE {
            return false;
        }
        // Of functions that are inlined into each other, the outer one comes first.
        let mut within = NONE;
        while item < items {
            within = range_of(item, at, within);
            if within == NONE {
                break;
            }
            item += 1;
        }
    }
    item >= items || path.walk.root != ROOT_COMPLETE
}
