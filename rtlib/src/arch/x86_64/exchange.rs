//! Changes of a word that only one thread writes to, and its signal handlers.

use core::arch::asm;

/// Stores `to` if the word is `from`, in one instruction: no handler of the thread comes between.
/// Without `lock`, which other threads would need. Returns the word before.
///
/// # Safety
/// The word may be written to, and only the calling thread writes there.
#[inline(always)]
pub unsafe fn if_equal(word: *mut u64, from: u64, to: u64) -> u64 {
    let mut was = from;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "cmpxchg [{word}], {to}", // rax: expected before, found after
            word = in(reg) word,
            to = in(reg) to,
            inout("rax") was,
            options(nostack),
        );
    }
    was
}
