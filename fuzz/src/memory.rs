//! An allocator that counts what each thread holds, and gives no thread more than a case may take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Bytes that a case may hold.
pub const MOST: i64 = 512 << 20;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static LIMIT: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// The system's allocator with a count.
pub struct Counted;

fn add(bytes: i64) -> bool {
    // A thread that ends has no count any more.
    let held = HELD.try_with(|held| {
        held.set(held.get().saturating_add(bytes));
        held.get()
    });
    let limit = LIMIT.try_with(Cell::get).unwrap_or(i64::MAX);
    let is_over = held.is_ok_and(|held| held > limit);
    if is_over {
        // What follows may allocate, too: the message, for one.
        let _ = LIMIT.try_with(|limit| limit.set(i64::MAX));
    }
    !is_over
}

// SAFETY: every call goes to the system's allocator, or returns null, which says that there is no memory.
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

/// Limits what this thread may hold from now on to [`MOST`] more than it does.
pub(crate) fn begin() {
    LIMIT.with(|limit| limit.set(HELD.with(Cell::get).saturating_add(MOST)));
}

/// Ends the limit.
pub(crate) fn end() {
    LIMIT.with(|limit| limit.set(i64::MAX));
}
