//! Vector registers, which are the program's: they are read, and never written.

use core::arch::asm;

/// The lower 64 bits of xmm0 to xmm7.
#[inline(always)]
pub fn low_half(register: usize) -> u64 {
    macro_rules! read {
        ($name:literal) => {{
            let bits: u64;
            // SAFETY: copies a register.
            unsafe {
                asm!(
                    concat!("movq {}, ", $name), // the lower half
                    out(reg) bits,
                    options(nomem, nostack, preserves_flags),
                );
            }
            bits
        }};
    }
    match register {
        0 => read!("xmm0"),
        1 => read!("xmm1"),
        2 => read!("xmm2"),
        3 => read!("xmm3"),
        4 => read!("xmm4"),
        5 => read!("xmm5"),
        6 => read!("xmm6"),
        _ => read!("xmm7"),
    }
}
