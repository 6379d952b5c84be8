//! Reading memory that may go away meanwhile: of a library that another thread unloads, of a stack whose bounds
//! have changed. The kernel reads it for us (process_vm_readv(2)), and says so where there is none.
//!
//! Where no system call may be made, or that one is refused, it is read as it stands.

use core::cell::Cell;
use core::ptr;

use super::sys::{self, Refused};

/// Copies the bytes from `at` on, up to the first that is not mapped; how many.
///
/// # Safety
/// It is memory of the program that was seen mapped.
#[inline(never)]
pub unsafe fn read(at: u64, to: &mut [u8]) -> usize {
    if let Some(count) = try_read(at, to) {
        return count;
    }
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr(), to.len()) };
    to.len()
}

/// The same of any address; `None` where the kernel may not be asked for it.
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

/// Copies so many bytes, or none.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_array<const N: usize>(at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the caller's promise.
    let count = unsafe { read(at, &mut bytes) };
    (count == N).then_some(bytes)
}

const WINDOW: usize = 256;

/// Words of a stack, a piece of it at a time.
pub struct Window {
    /// Where the piece begins, and how long it is.
    start: Cell<u64>,
    len: Cell<u64>,
    bytes: Cell<[u8; WINDOW]>,
}

impl Window {
    /// One that has read nothing yet.
    pub const fn new() -> Self {
        Self {
            start: Cell::new(0),
            len: Cell::new(0),
            bytes: Cell::new([0; WINDOW]),
        }
    }

    /// The word at `at`, in memory that ends at `end`.
    ///
    /// # Safety
    /// As for [`read`]. Nobody else writes there.
    pub unsafe fn word(&self, at: u64, end: u64) -> Option<u64> {
        let inside = |at: u64| at.wrapping_sub(self.start.get()) <= self.len.get().wrapping_sub(8);
        if self.len.get() < 8 || !inside(at) {
            let len = (end.checked_sub(at)?).min(WINDOW as u64) as usize;
            // SAFETY: the buffer is this thread's alone, and nobody else has a reference to it now; the rest
            // is the caller's promise.
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
        // SAFETY: eight bytes from there on are in the buffer.
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
        // SAFETY: mapped just now; the second page is unmapped before anybody reads it.
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
