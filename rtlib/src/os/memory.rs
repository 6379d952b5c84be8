//! Memory of the runtime, listed so that the command can unmap it.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::image::OwnMapping;
use abi::shortage::Shortage;

use super::parameters::{ipath_maps, ipath_maps_used, ipath_parameters};
use super::shared;
use super::sys::{self, File};

/// Bytes of the reserve that are in use.
static RESERVE_USED: AtomicU64 = AtomicU64::new(0);

/// Maps `len` bytes of zeroed memory, rounded up to pages, and returns their address. Without
/// system calls they come from the reserve.
///
/// # Errors
/// The kernel refuses, the bound of [`shared::take_memory`] is exceeded, or the list is full.
pub fn map(len: u64) -> Result<u64, Shortage> {
    let len = len.next_multiple_of(abi::PAGE);
    shared::take_memory(len)?;
    let mapped = list(len, || {
        let address = if sys::may_call() {
            sys::map_anonymous(len).ok_or(Shortage::Mapping)?
        } else {
            take(len).ok_or(Shortage::Reserve)?
        };
        // SAFETY: mapped above, or part of the reserve.
        if unsafe { touch(address, len) }.is_none() {
            // SAFETY: the mapping has no user yet.
            unsafe { sys::unmap(address, len) };
            return Err(Shortage::Mapping);
        }
        Ok(address)
    });
    if mapped.is_err() {
        shared::give_back_memory(len);
    }
    mapped
}

/// Populates newly mapped memory if memory is bounded. Otherwise a later touch would end the
/// process if others have used up the cgroup by then. `None` if there is no memory.
///
/// # Safety
/// The range is mapped, writable, and not in use yet.
unsafe fn touch(address: u64, len: u64) -> Option<()> {
    if !shared::is_bounded() {
        return Some(());
    }
    if sys::may_call() {
        return sys::populate(address, len).then_some(());
    }
    for page in (address..address + len).step_by(abi::PAGE as usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { (page as *mut u8).write_volatile(0) };
    }
    Some(())
}

/// Maps the first `count` pages of a file read-only and returns their address. `None` if that
/// fails. A page of the runtime's own precedes them, so that the command can identify the mapping
/// when it removes it.
pub fn map_pages_of(file: &File, count: u64) -> Option<u64> {
    let own = map((1 + count) * abi::PAGE).ok()?;
    let pages = own + abi::PAGE;
    // SAFETY: the pages belong to the runtime and are not in use.
    if unsafe { sys::map_pages_of(file, pages, count) } {
        return Some(pages);
    }
    // SAFETY: as above.
    unsafe { unmap(own) };
    None
}

/// Unmaps the pages returned by [`map_pages_of`].
///
/// # Safety
/// The pages are no longer in use.
pub unsafe fn unmap_pages_of(pages: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { unmap(pages - abi::PAGE) };
}

/// Calls `map`, which maps `len` bytes and returns their address, and lists the mapping.
///
/// # Errors
/// The list is full, or `map` fails.
fn list(len: u64, map: impl FnOnce() -> Result<u64, Shortage>) -> Result<u64, Shortage> {
    // The entry is claimed first, so that mapped memory is always listed.
    let claim = |(mapping, used): &(&OwnMapping, u64)| {
        if mapping.len.load(Ordering::Relaxed) != 0 {
            return false;
        }
        ipath_maps_used.fetch_max(*used, Ordering::Relaxed);
        let claimed = mapping
            .len
            .compare_exchange(0, len, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok()
    };
    let (mapping, _) = ipath_maps
        .iter()
        .zip(1..)
        .find(claim)
        .ok_or(Shortage::List)?;
    match map() {
        Ok(address) => {
            mapping.address.store(address, Ordering::Release);
            Ok(address)
        }
        Err(shortage) => {
            mapping.len.store(0, Ordering::Release);
            Err(shortage)
        }
    }
}

/// Allocates `len` bytes, a whole number of pages, from the reserve and returns their address.
/// `None` if it has too few bytes left.
fn take(len: u64) -> Option<u64> {
    let capacity = ipath_parameters.reserve_len.load(Ordering::Relaxed);
    let room = |used: u64| used.checked_add(len).filter(|&end| end <= capacity);
    let taken = RESERVE_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
    Some(ipath_parameters.reserve.load(Ordering::Relaxed) + taken.ok()?)
}

/// Frees the memory returned by [`map`]. Memory of the reserve stays in use.
///
/// # Safety
/// `address` came from `map`, and nothing uses the memory any more.
pub unsafe fn unmap(address: u64) {
    if !sys::may_call() {
        return;
    }
    let Some(mapping) = ipath_maps
        .iter()
        .find(|s| s.address.load(Ordering::Acquire) == address)
    else {
        return;
    };
    let len = mapping.len.load(Ordering::Relaxed);
    mapping.address.store(0, Ordering::Relaxed);
    // SAFETY: guaranteed by the caller, for exactly the range that was mapped.
    unsafe { sys::unmap(address, len) };
    mapping.len.store(0, Ordering::Release);
    shared::give_back_memory(len);
}
