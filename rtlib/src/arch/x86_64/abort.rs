//! The end of a program whose state is wrong.

use core::arch::asm;

/// Ends the program with SIGILL. A core names the place, which unwinding would hide.
pub fn abort() -> ! {
    // SAFETY: ends the process.
    unsafe {
        asm!(
            "ud2", // an instruction that no processor has
            options(noreturn, nomem, nostack),
        )
    }
}
