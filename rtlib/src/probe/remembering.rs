//! Steps of entries that are remembered.

use abi::segment::RecordHead;

use super::next::FOUND;
use crate::arch::clock;
use crate::calls::overhead::ipath_costs;
use crate::ledger::record;
use crate::thread::Thread;

/// Makes the walk of the call. True if its words alone determine the result.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn walk(thread: *mut Thread, function: u32, slot: u64) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { (*thread).walker.walk_determined(function, slot) }
}

/// Caches the last walk with the record of its path, and returns the stub's next action. Everything
/// else is taken from the thread, so the caller needs no stack at this point.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn remember(thread: *mut Thread, known: &'static RecordHead) -> *mut Thread {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let words = (*thread).walker.words();
        let cost = ipath_costs.of(record::way(known), words);
        (*thread).walker.remember(known, cost);
        (*thread).meter.pass_until(clock::now());
    }
    thread.wrapping_byte_add(FOUND)
}
