//! Reads that do not wait for their address.

use core::arch::asm;

/// `at`, taken from the word at `guess` if that is equal. A processor that predicts the branch reads
/// on from the guess while it still computes `at`, which depends on one frame after another.
///
/// # Safety
/// The word at `guess` may be read. It need not be an address.
#[inline(always)]
pub unsafe fn address(at: u64, guess: *const u64) -> u64 {
    let likely: u64;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "mov {likely}, [{guess}]", // does not depend on `at`
            "cmp {likely}, {at}",      // is it right?
            "je 2f",                   // predicted: what follows runs ahead
            "mov {likely}, {at}",      // a wrong guess
            "2:",
            at = in(reg) at,
            guess = in(reg) guess,
            likely = out(reg) likely,
            options(pure, readonly, nostack),
        );
    }
    likely
}
