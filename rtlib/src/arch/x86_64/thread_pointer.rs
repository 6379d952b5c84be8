//! The thread pointer, which is the FS base (psABI 3.4.6), and the data of C libraries at it.

use core::arch::asm;

use super::system_call::{number, syscall};

/// The word at %fs:0. In variant II of TLS, the control block starts with its own address. So this
/// is the FS base if the program follows the psABI.
#[inline(always)]
pub fn self_pointer() -> u64 {
    let base: u64;
    // SAFETY: reads the thread's own control block.
    unsafe {
        asm!(
            "mov {}, fs:0", // the first word of the control block
            out(reg) base,
            options(readonly, nostack, preserves_flags),
        );
    }
    base
}

/// The FS base, read from its register. Only if the kernel lets programs read it (AT_HWCAP2 bit 1);
/// otherwise the instruction faults.
#[inline(always)]
pub fn register() -> u64 {
    let base: u64;
    // SAFETY: reads a register.
    unsafe {
        asm!(
            "rdfsbase {}", // the register itself
            out(reg) base,
            options(nomem, nostack, preserves_flags),
        );
    }
    base
}

/// The word with which glibc xors the pointers that it mangles (`tcbhead_t`,
/// sysdeps/x86_64/nptl/tls.h).
pub fn pointer_guard() -> u64 {
    let guard: u64;
    // SAFETY: reads the thread's control block.
    unsafe {
        asm!(
            "mov {}, fs:0x30", // `pointer_guard`
            out(reg) guard,
            options(readonly, nostack, preserves_flags),
        );
    }
    guard
}

/// The FS base according to the kernel (arch_prctl(2)); `None` if it refuses.
pub fn of_kernel() -> Option<u64> {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0u64;
    let arguments = [ARCH_GET_FS, &raw mut base as u64, 0, 0, 0, 0];
    // SAFETY: the word is writable.
    let result = unsafe { syscall(number::ARCH_PRCTL, arguments) };
    (result >= 0).then_some(base)
}
