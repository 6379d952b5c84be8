//! What a signal's delivery leaves on the stack.

use super::register::{RBP, RBX, RSP};

/// What a handler returns to: `mov rax, 15; syscall`, rt_sigreturn(2). GCC's and gdb's unwinders know it by these
/// bytes, too, where it has no unwind entry, as with musl (libgcc/config/i386/linux-unwind.h).
pub const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

/// Bytes from the stack pointer there to the `mcontext_t` of the `ucontext_t` (asm/ucontext.h).
const MCONTEXT: u64 = 40;

/// Where the registers of what has been interrupted are that calls keep, from the stack pointer there on
/// (`struct sigcontext`, asm/sigcontext.h), by their DWARF numbers.
pub const REGISTERS: [(usize, u64); 7] = [
    (12, MCONTEXT + 4 * 8),
    (13, MCONTEXT + 5 * 8),
    (14, MCONTEXT + 6 * 8),
    (15, MCONTEXT + 7 * 8),
    (RBP, MCONTEXT + 10 * 8),
    (RBX, MCONTEXT + 11 * 8),
    (RSP, MCONTEXT + 15 * 8),
];
/// Where its program counter is.
pub const PC: u64 = MCONTEXT + 16 * 8;
