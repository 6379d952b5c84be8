//! The functions that a path must pass through, or must not, for its calls to be recorded.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Code of a function that a path must pass through, or must not.
#[repr(C)]
pub struct FilterRange {
    /// First address of the code.
    pub start: AtomicU64,
    /// First address after it.
    pub end: AtomicU64,
    /// The place of the function in the list of those that a path must pass through, in this order
    /// from the root; [`EXCLUDED`] if paths must not pass through it.
    pub item: AtomicU32,
    /// Not used; zero.
    pub reserved: AtomicU32,
}

impl FilterRange {
    /// No code.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            item: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
        }
    }
}

impl Default for FilterRange {
    fn default() -> Self {
        Self::new()
    }
}

/// [`FilterRange::item`] of a function that paths must not pass through.
pub const EXCLUDED: u32 = u32::MAX;
/// Length of the table of [`FilterRange`].
pub const MOST_RANGES: usize = 4096;

const _: () = assert!(size_of::<FilterRange>() == 24);
