//! Reads of memory that may be unmapped at any time, such as a library that another thread unloads
//! or a stack whose bounds have changed. The kernel reads it (process_vm_readv(2)) and reports
//! unmapped addresses.
//!
//! If that call is not allowed or not available, the memory is read directly.

use core::cell::Cell;
use core::ptr;

use super::sys::{self, Refused};

/// Copies the bytes at address `at` to `to`, up to the first one that is not mapped. Returns the
/// number of bytes copied.
///
/// # Safety
/// The memory belongs to the program and was seen mapped.
#[inline(never)]
pub unsafe fn read(at: u64, to: &mut [u8]) -> usize {
    if let Some(count) = try_read(at, to) {
        return count;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr(), to.len()) };
    to.len()
}

/// Copies bytes as [`read`] does, from any address. `None` if the kernel cannot be asked.
pub fn try_read(at: u64, to: &mut [u8]) -> Option<usize> {
    if !sys::may_call() {
        return None;
    }
    match sys::read_memory(at, to) {
        Ok(count) => Some(count),
        Err(Refused::Fault) => Some(0),
        Err(Refused::Call) => None,
    }
}

/// Copies the `N` bytes at address `at`; `None` if they are not all mapped.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_array<const N: usize>(at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: guaranteed by the caller.
    let count = unsafe { read(at, &mut bytes) };
    (count == N).then_some(bytes)
}

/// Maximum length in bytes of the piece that a [`Window`] caches.
const WINDOW: usize = 256;

/// A cache of words of a stack, one piece at a time.
pub struct Window {
    /// The address of the cached piece.
    start: Cell<u64>,
    /// The length of the cached piece, in bytes.
    len: Cell<u64>,
    /// The contents of the cached piece.
    bytes: Cell<[u8; WINDOW]>,
}

impl Window {
    /// An empty cache.
    pub const fn new() -> Self {
        Self {
            start: Cell::new(0),
            len: Cell::new(0),
            bytes: Cell::new([0; WINDOW]),
        }
    }

    /// The word at address `at`, in memory that ends at `end`, from the cache if it is there.
    /// `None` if the word is not mapped or exceeds `end`.
    ///
    /// # Safety
    /// As for [`read`]. No other thread writes to the memory.
    pub unsafe fn word(&self, at: u64, end: u64) -> Option<u64> {
        let inside = |at: u64| at.wrapping_sub(self.start.get()) <= self.len.get().wrapping_sub(8);
        if self.len.get() < 8 || !inside(at) {
            let len = (end.checked_sub(at)?).min(WINDOW as u64) as usize;
            // SAFETY: the buffer belongs to this thread, and no other reference to it exists now.
            // The caller guarantees the rest.
            let got = unsafe {
                let bytes = &mut *self.bytes.as_ptr();
                read(at, bytes.get_mut(..len)?)
            };
            self.start.set(at);
            self.len.set(got as u64);
            if got < 8 {
                return None;
            }
        }
        let offset = (at - self.start.get()) as usize;
        // SAFETY: the eight bytes from there on are in the buffer.
        Some(unsafe {
            self.bytes
                .as_ptr()
                .byte_add(offset)
                .cast::<u64>()
                .read_unaligned()
        })
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::parameters::ipath_parameters;
    use core::sync::atomic::Ordering;
    use std::vec::Vec;

    #[test]
    fn what_is_gone_is_not_read() {
        ipath_parameters.system_calls.store(1, Ordering::Relaxed);
        let page = sys::map_anonymous(2 * abi::PAGE).expect("memory");
        // SAFETY: mapped just now. The second page is unmapped before it is read.
        unsafe {
            (page as *mut u64).write(7);
            ((page + abi::PAGE - 8) as *mut u64).write(9);
            sys::unmap(page + abi::PAGE, abi::PAGE);
            assert_eq!(read_array::<8>(page), Some(7u64.to_le_bytes()));
            assert_eq!(read_array::<8>(page + abi::PAGE), None);
            assert_eq!(read_array::<8>(page + abi::PAGE - 4), None);
            let window = Window::new();
            let end = page + 2 * abi::PAGE;
            let words: Vec<_> = [0, 8, 4088, 4092, 4096, 4080, 0]
                .map(|at| window.word(page + at, end))
                .into();
            let expected = [Some(7), Some(0), Some(9), None, None, Some(0), Some(7)];
            assert_eq!(words, expected);
            assert_eq!(window.word(end - 4, end), None);
            sys::unmap(page, abi::PAGE);
        }
    }
}
