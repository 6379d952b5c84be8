//! A thread's table of paths: what is learnt of a path that a thread comes to for the first time.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{ROOT_OVERFLOW, RecordHead};

use crate::segment::For;
use crate::thread::{PathSlot, Thread};
use crate::walk::Walk;
use crate::{memory, record, segment, tree};

/// Return addresses of the longest path that is copied.
const LONGEST_COPY: u64 = 1 << 12;

/// Return addresses that are copied at most.
const MOST_COPIED: u64 = 1 << 23;

/// How many have been, of all threads.
static COPIED: AtomicU64 = AtomicU64::new(0);

/// A copy of the return addresses just walked, for as long as the session lasts. Null where there is no
/// room for it: comparing with the tree then takes longer.
unsafe fn keep(thread: *mut Thread, len: u64) -> *const u64 {
    /// Bytes that are mapped at a time.
    const CHUNK: u64 = 1 << 18;
    if len > LONGEST_COPY || COPIED.fetch_add(len, Ordering::Relaxed) > MOST_COPIED {
        return ptr::null();
    }
    // SAFETY: the thread is the caller's; what is left of a chunk is used by nobody.
    unsafe {
        if (*thread).copies_left < len {
            let Some(chunk) = memory::map(CHUNK) else {
                return ptr::null();
            };
            (*thread).copies = chunk as *mut u64;
            (*thread).copies_left = CHUNK / 8;
        }
        let copy = (*thread).copies;
        ptr::copy_nonoverlapping((*thread).frames, copy, len as usize);
        (*thread).copies = copy.add(len as usize);
        (*thread).copies_left -= len;
        copy
    }
}

/// This thread's record of the path just walked, which it has none of yet; that of the function's
/// overflow path where there is no room for it.
///
/// # Safety
/// The thread is the caller's, and its `frames` are as the walk has left them.
pub(crate) unsafe fn path(
    thread: *mut Thread,
    function: u32,
    walk: &Walk,
) -> Option<&'static RecordHead> {
    // SAFETY: the caller's promise.
    unsafe {
        match make_path(thread, function, walk) {
            Some(record) => Some(record),
            None => overflow(thread, function),
        }
    }
}

/// Interns the path just walked and makes this thread's record of it.
unsafe fn make_path(
    thread: *mut Thread,
    function: u32,
    walk: &Walk,
) -> Option<&'static RecordHead> {
    if walk.root == ROOT_OVERFLOW {
        return None;
    }
    // SAFETY: the thread is the caller's; `frames` holds `len` addresses.
    unsafe {
        let shape = PathSlot::shape(walk.len, walk.root)?;
        let frames = core::slice::from_raw_parts((*thread).frames, walk.len as usize);
        let path = tree::intern(function, frames, walk.root)?;
        if ((*thread).paths_used + 1) * 2 > (*thread).paths_mask {
            grow_paths(thread)?;
        }
        let record = record::make((*thread).index, (*thread).tid, function, path, For::Path)?;
        let slot = PathSlot {
            hash: walk.hash,
            path,
            record,
            frames: keep(thread, walk.len),
            shape,
            function,
        };
        insert((*thread).paths, (*thread).paths_mask, slot);
        (*thread).paths_used += 1;
        Some(segment::record(record))
    }
}

/// This thread's record of what all paths of a function share that there is no room for. It is kept
/// under a hash of its own, in the half of the table that paths leave free.
unsafe fn overflow(thread: *mut Thread, function: u32) -> Option<&'static RecordHead> {
    // SAFETY: the thread is the caller's, and its table keeps free slots.
    unsafe {
        let path = tree::overflow(function)?;
        let hash = u64::from(path);
        if let Some(known) = find_overflow(thread, hash, path) {
            return Some(known);
        }
        let is_crowded = ((*thread).paths_used + 1) * 4 > (*thread).paths_mask * 3;
        if is_crowded {
            grow_paths(thread)?;
        }
        let (index, tid) = ((*thread).index, (*thread).tid);
        let record = record::make(index, tid, function, path, For::Overflow)?;
        let slot = PathSlot {
            hash,
            path,
            record,
            frames: ptr::null(),
            shape: 0,
            function,
        };
        insert((*thread).paths, (*thread).paths_mask, slot);
        (*thread).paths_used += 1;
        Some(segment::record(record))
    }
}

/// The record that is kept under `hash` for the overflow path `path`.
unsafe fn find_overflow(thread: *mut Thread, hash: u64, path: u32) -> Option<&'static RecordHead> {
    // SAFETY: the table is the thread's own, its mask one less than its length, some slots free.
    unsafe {
        let (table, mask) = ((*thread).paths, (*thread).paths_mask);
        let mut at = hash & mask;
        while (*table.add(at as usize)).path != 0 {
            let slot = *table.add(at as usize);
            if slot.hash == hash && slot.path == path {
                return Some(segment::record(slot.record));
            }
            at = (at + 1) & mask;
        }
        None
    }
}

unsafe fn insert(table: *mut PathSlot, mask: u64, new: PathSlot) {
    // SAFETY: the table has `mask + 1` slots, some of them free.
    unsafe {
        let mut at = new.hash & mask;
        while (*table.add(at as usize)).path != 0 {
            at = (at + 1) & mask;
        }
        *table.add(at as usize) = new;
    }
}

unsafe fn grow_paths(thread: *mut Thread) -> Option<()> {
    // SAFETY: the old table is the thread's own; the new one is zeroed memory of twice its length.
    unsafe {
        let (old, slots) = ((*thread).paths, (*thread).paths_mask + 1);
        let new = memory::map(2 * slots * size_of::<PathSlot>() as u64)? as *mut PathSlot;
        for at in 0..slots {
            let slot = *old.add(at as usize);
            if slot.path != 0 {
                insert(new, 2 * slots - 1, slot);
            }
        }
        (*thread).paths = new;
        (*thread).paths_mask = 2 * slots - 1;
        memory::unmap(old as u64);
        Some(())
    }
}
