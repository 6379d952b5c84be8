//! Memory of the runtime's own, listed so that the command can take it out again.

use core::sync::atomic::Ordering;

use crate::state::{ipath_maps, ipath_parameters};
use crate::sys;

/// Maps `len` bytes, rounded up to pages, zeroed; `None` where the system refuses, may not be
/// asked, or the list is full.
pub fn map(len: u64) -> Option<u64> {
    if ipath_parameters.system_calls.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let len = len.next_multiple_of(abi::PAGE);
    // The slot is claimed first: memory that is mapped and not listed would stay behind.
    let slot = ipath_maps.iter().find(|s| {
        s.len
            .compare_exchange(0, len, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    })?;
    match sys::map_anonymous(len) {
        Some(address) => {
            slot.address.store(address, Ordering::Release);
            Some(address)
        }
        None => {
            slot.len.store(0, Ordering::Release);
            None
        }
    }
}

/// Gives back what [`map`] returned.
///
/// # Safety
/// `address` came from `map`, and nothing uses the memory any more.
pub unsafe fn unmap(address: u64) {
    let Some(slot) = ipath_maps
        .iter()
        .find(|s| s.address.load(Ordering::Acquire) == address)
    else {
        return;
    };
    let len = slot.len.load(Ordering::Relaxed);
    slot.address.store(0, Ordering::Relaxed);
    // SAFETY: the caller's promise, for exactly the range that was mapped.
    unsafe { sys::unmap(address, len) };
    slot.len.store(0, Ordering::Release);
}
