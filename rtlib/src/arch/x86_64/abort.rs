//! The end of a program whose state is wrong.

use core::arch::asm;

/// Ends the program with SIGILL. A core dump then shows the place, which unwinding would hide.
pub fn abort() -> ! {
    // SAFETY: ends the process.
    unsafe {
        asm!(
            "ud2", // an undefined instruction
            options(noreturn, nomem, nostack),
        )
    }
}
