//! Running out of memory (`ulimit -v`): one line and status 1, instead of Rust's abort.
//!
//! While this process handles termination signals itself ([`note_held`]), a session may be in a
//! target. The command then frees a reserved address range, sends itself SIGTERM, and removes the
//! session as after any SIGTERM.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr};

/// The system allocator. It ends the process if there is no memory, except inside [`bearing`],
/// where it returns null.
pub struct Allocator;

/// The most memory, in bytes, that removing a session usually needs.
const RESERVE: usize = 8 << 20;
/// The reserved address range. Null before the first [`note_held`], and once the range is freed.
static KEPT: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());

/// True once the lack of memory has been reported.
static HAS_SAID: AtomicBool = AtomicBool::new(false);

/// True while this process handles termination signals itself.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread is inside [`bearing`].
    static BEARS: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this process handles termination signals itself, or no longer does. The first call
/// with true also reserves the addresses for a clean end.
pub fn note_held(is_held: bool) {
    if is_held && KEPT.load(Relaxed).is_null() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an unused address chosen by the kernel.
        let kept = unsafe { libc::mmap(ptr::null_mut(), RESERVE, libc::PROT_NONE, flags, -1, 0) };
        if kept != libc::MAP_FAILED {
            KEPT.store(kept, Relaxed);
        }
    }
    IS_ASKED.store(is_held, Relaxed);
}

/// True if this command is ending for lack of memory and has reported it.
pub fn has_said() -> bool {
    HAS_SAID.load(Relaxed)
}

/// Runs `what`, which can handle a failed allocation (`try_reserve`): on this thread, an allocation
/// that fails does not end the process meanwhile. Use it where foreign input decides the size.
pub fn bearing<R>(what: impl FnOnce() -> R) -> R {
    let before = BEARS.replace(true);
    let result = what();
    BEARS.set(before);
    result
}

// SAFETY: memory comes from the system allocator. If it fails, it is called once more, or the
// process ends.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, here and below.
        let alloc = || unsafe { System.alloc(layout) };
        alloc_or_end(layout.size(), alloc)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let alloc = || unsafe { System.alloc_zeroed(layout) };
        alloc_or_end(layout.size(), alloc)
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; a failure leaves the block unchanged.
        let alloc = || unsafe { System.realloc(at, layout, size) };
        alloc_or_end(size, alloc)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) };
    }
}

/// The block that `alloc` returns. If that is null: null inside [`bearing`], else as [`starved`].
fn alloc_or_end(bytes: usize, alloc: impl Fn() -> *mut u8) -> *mut u8 {
    let at = alloc();
    if at.is_null() && !BEARS.try_with(Cell::get).unwrap_or(false) {
        starved(bytes, alloc)
    } else {
        at
    }
}

/// Reports that `bytes` cannot be allocated. If addresses are reserved and this process handles
/// signals, frees the addresses, sends SIGTERM and calls `alloc` again. Otherwise, or if `alloc`
/// fails again, ends the process with status 1.
#[cold]
fn starved(bytes: usize, alloc: impl Fn() -> *mut u8) -> *mut u8 {
    let kept = KEPT.swap(ptr::null_mut(), Relaxed);
    if !kept.is_null() && IS_ASKED.load(Relaxed) {
        say(bytes);
        // SAFETY: nothing uses the mapping; the signal goes to this process, which handles it.
        unsafe {
            libc::munmap(kept, RESERVE);
            libc::kill(libc::getpid(), libc::SIGTERM);
        }
        let at = alloc();
        if !at.is_null() {
            return at;
        }
    } else {
        say(bytes);
    }
    // SAFETY: ends this process without allocating.
    unsafe { libc::_exit(1) }
}

/// Writes the line that reports the lack of `bytes` to standard error, without allocating.
fn say(bytes: usize) {
    HAS_SAID.store(true, Relaxed);
    const BEFORE: &[u8] = b"ipath: memory: ";
    const AFTER: &[u8] = b" more bytes cannot be allocated: the system is out of memory, or a \
        limit is reached (ulimit -v)\n";
    let mut line = [0u8; BEFORE.len() + 20 + AFTER.len()];
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    let mut rest = bytes;
    while first == digits.len() || rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut len = 0;
    for part in [BEFORE, &digits[first..], AFTER] {
        line[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    // SAFETY: reads `len` bytes of the line.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_bears_it_goes_on() {
        let too_much = || alloc_or_end(1 << 60, ptr::null_mut);
        assert!(bearing(too_much).is_null());
        assert!(bearing(
            || bearing(too_much).is_null() && too_much().is_null()
        ));
        assert!(!BEARS.get());
    }
}
