//! The processor's counters.

use core::arch::asm;

/// The value of a counter, by the number for `rdpmc`.
///
/// # Safety
/// The kernel lets the process read it. Otherwise the instruction faults.
#[inline(always)]
pub unsafe fn read(number: u32) -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: guaranteed by the caller; it has no other effect.
    unsafe {
        asm!(
            "rdpmc", // the counter ecx, in edx and eax
            in("ecx") number,
            lateout("rax") low,
            lateout("rdx") high,
            // Without `nomem`, so that it is not reordered with the reads around it.
            options(nostack, preserves_flags),
        );
    }
    high << 32 | low & 0xffff_ffff
}
