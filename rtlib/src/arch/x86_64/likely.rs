//! Loads whose address is predicted.

use core::arch::asm;

/// Returns `at`, taken from the word at `guess` if that is equal. A processor that predicts the
/// branch continues with the guess while it still computes `at`, which depends on one frame after
/// another.
///
/// # Safety
/// The word at `guess` may be read. It need not be an address.
#[inline(always)]
pub unsafe fn address(at: u64, guess: *const u64) -> u64 {
    let likely: u64;
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "mov {likely}, [{guess}]", // load the guess; this does not depend on `at`
            "cmp {likely}, {at}",      // is the guess right?
            "je 2f",                   // yes, as predicted: following code runs ahead
            "mov {likely}, {at}",      // no: use the correct address
            "2:",
            at = in(reg) at,
            guess = in(reg) guess,
            likely = out(reg) likely,
            options(pure, readonly, nostack),
        );
    }
    likely
}
