//! The thread pointer, which is the FS base (psABI 3.4.6), and what C libraries keep at it.

use core::arch::asm;

use super::system_call::{number, syscall};

/// The word at %fs:0. Thread pointers of variant II point at themselves, so that it is the FS base where the
/// program follows the psABI.
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

/// The FS base by its register, where the kernel lets programs read that (AT_HWCAP2 bit 1).
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

/// What glibc xors the pointers with that it keeps (`tcbhead_t`, sysdeps/x86_64/nptl/tls.h).
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

/// The FS base as the kernel has it (arch_prctl(2)); `None` if it refuses.
pub fn of_kernel() -> Option<u64> {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0u64;
    let arguments = [ARCH_GET_FS, &raw mut base as u64, 0, 0, 0, 0];
    // SAFETY: the word is ours to write.
    let result = unsafe { syscall(number::ARCH_PRCTL, arguments) };
    (result >= 0).then_some(base)
}
