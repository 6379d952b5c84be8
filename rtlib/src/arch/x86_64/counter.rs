//! The processor's counters.

use core::arch::asm;

/// What a counter holds, by the number that `rdpmc` takes.
///
/// # Safety
/// The kernel lets the process read it: else the instruction faults.
#[inline(always)]
pub unsafe fn read(number: u32) -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: the caller's promise; it changes nothing else.
    unsafe {
        asm!(
            "rdpmc", // the counter ecx, in edx and eax
            in("ecx") number,
            lateout("rax") low,
            lateout("rdx") high,
            // Not moved past what is read of memory around it.
            options(nostack, preserves_flags),
        );
    }
    high << 32 | low & 0xffff_ffff
}
