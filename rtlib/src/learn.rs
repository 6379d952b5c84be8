//! What is learnt of a path that a thread comes to for the first time.

use abi::segment::{ROOT_OVERFLOW, RecordHead};

use crate::segment::For;
use crate::thread::Thread;
use crate::walk::{self, Walk};
use crate::{entry, record, segment, tree};

/// This thread's record of the path just walked, which it has none of yet; that of the function's
/// overflow path where there is no room for it.
///
/// # Safety
/// The thread is the caller's, and its `sites` or `frames` are as the walk has left them.
pub(crate) unsafe fn path(
    thread: *mut Thread,
    function: u32,
    walk: &Walk,
) -> Option<&'static RecordHead> {
    // SAFETY: the caller's promise.
    let number = unsafe {
        match make_path(thread, function, walk) {
            Some(number) => Some(number),
            None => overflow(thread, function),
        }
    };
    number.map(segment::record)
}

/// Interns the path just walked and makes this thread's record of it.
unsafe fn make_path(thread: *mut Thread, function: u32, walk: &Walk) -> Option<u32> {
    if walk.root == ROOT_OVERFLOW {
        return None;
    }
    // SAFETY: the thread is the caller's; `frames` holds `len` addresses.
    unsafe {
        if walk.has_sites {
            walk::fill_frames(thread, walk);
        }
        let frames = core::slice::from_raw_parts((*thread).frames, walk.len as usize);
        let node = tree::intern(function, frames, walk.root)?;
        let paths = &mut (*thread).paths;
        paths.reserve(For::Path)?;
        let (index, tid) = ((*thread).index, (*thread).tid);
        let record = record::make(index, tid, function, node, For::Path)?;
        paths.add(&entry::path(thread, function, walk), node, record)?;
        Some(record)
    }
}

/// This thread's record of what all paths of a function share that there is no room for.
unsafe fn overflow(thread: *mut Thread, function: u32) -> Option<u32> {
    // SAFETY: the thread is the caller's.
    unsafe {
        let node = tree::overflow(function)?;
        let paths = &mut (*thread).paths;
        if let Some(known) = paths.find_overflow(function, node) {
            return Some(known);
        }
        paths.reserve(For::Overflow)?;
        let (index, tid) = ((*thread).index, (*thread).tid);
        let record = record::make(index, tid, function, node, For::Overflow)?;
        paths.add_overflow(function, node, record)?;
        Some(record)
    }
}
