//! Vector registers. They belong to the program, so they are only read.

use core::arch::asm;

/// The lower 64 bits of one of xmm0 to xmm7, by its number; xmm7 for larger numbers.
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
