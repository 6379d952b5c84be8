//! An allocator that counts the bytes held by each thread, and limits them during a case.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The maximum number of bytes that a case may hold.
pub const MAX_BYTES: i64 = 512 << 20;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static LIMIT: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// The system allocator with a counter.
pub struct Counted;

fn add(bytes: i64) -> bool {
    // A thread that is exiting has no counter any more.
    let held = HELD.try_with(|held| {
        held.set(held.get().saturating_add(bytes));
        held.get()
    });
    let limit = LIMIT.try_with(Cell::get).unwrap_or(i64::MAX);
    let is_over = held.is_ok_and(|held| held > limit);
    if is_over {
        // The code that follows may allocate, for example the message.
        let _ = LIMIT.try_with(|limit| limit.set(i64::MAX));
    }
    !is_over
}

// SAFETY: every call goes to the system allocator, or returns null, which means out of memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !add(layout.size() as i64) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Limits this thread to [`MAX_BYTES`] more than it holds now.
pub(crate) fn begin() {
    LIMIT.with(|limit| limit.set(HELD.with(Cell::get).saturating_add(MAX_BYTES)));
}

/// Removes the limit.
pub(crate) fn end() {
    LIMIT.with(|limit| limit.set(i64::MAX));
}
