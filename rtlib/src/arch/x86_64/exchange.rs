//! Changes of a word that only one thread writes to, and its signal handlers.

use core::arch::asm;

/// Adds 1 to the word, in one instruction, so that no handler of the thread comes between. Other
/// threads would need `lock`.
///
/// # Safety
/// The word may be written to, and only the calling thread writes there.
#[inline(always)]
pub unsafe fn increment(word: *mut u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("inc qword ptr [{word}]", word = in(reg) word, options(nostack));
    }
}

/// Stores `to` if the word is `from`, in one instruction, so that no handler of the thread comes
/// between. Other threads would need `lock`. Returns the word's value before; it is `from` if `to`
/// was stored.
///
/// # Safety
/// The word may be written to, and only the calling thread writes there.
#[inline(always)]
pub unsafe fn if_equal(word: *mut u64, from: u64, to: u64) -> u64 {
    let mut was = from;
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "cmpxchg [{word}], {to}", // rax: the expected value, then the previous value
            word = in(reg) word,
            to = in(reg) to,
            inout("rax") was,
            options(nostack),
        );
    }
    was
}
