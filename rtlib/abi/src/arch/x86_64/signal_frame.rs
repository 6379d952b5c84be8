//! The stack frame of a signal handler (arch/x86/include/asm/sigframe.h, `struct rt_sigframe`).
//!
//! Offsets are in bytes from the first byte of the frame:
//!
//! ```text
//! 0 restorer | 8 uc_flags | 16 uc_link | 24 uc_stack | 48 r8 .. r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp |
//! 176 rip | 184 rflags | 192 cs, gs, fs, ss | .. | 232 fpstate | .. | 440 end
//! ```

/// `mov rax, 15; syscall`: rt_sigreturn(2) as glibc calls it. GCC's and gdb's unwinders recognize
/// these bytes in code without unwind entries (libgcc/config/i386/linux-unwind.h).
pub const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
/// `mov eax, 15; syscall`: the short form of musl and Go.
pub const SHORT_RESTORER: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];
/// Flag of a `struct sigaction` with a restorer. The kernel refuses actions without one.
pub const SA_RESTORER: u64 = 0x0400_0000;

const WORD: u64 = size_of::<u64>() as u64;

/// `uc_flags`.
pub const FLAGS: u64 = WORD;
/// `uc_stack`: the alternate stack at the delivery, its address, flags, and size.
pub const ALTERNATE: u64 = 3 * WORD;
/// r8, the first register of `struct sigcontext_64`.
pub const REGISTERS: u64 = ALTERNATE + 3 * WORD;
/// r12 of the interrupted code.
pub const R12: u64 = REGISTERS + 4 * WORD;
/// r13.
pub const R13: u64 = REGISTERS + 5 * WORD;
/// r14.
pub const R14: u64 = REGISTERS + 6 * WORD;
/// r15.
pub const R15: u64 = REGISTERS + 7 * WORD;
/// rbp.
pub const RBP: u64 = REGISTERS + 10 * WORD;
/// rbx.
pub const RBX: u64 = REGISTERS + 11 * WORD;
/// The stack pointer.
pub const SP: u64 = REGISTERS + 15 * WORD;
/// The program counter.
pub const PC: u64 = SP + WORD;
/// cs, gs, fs, and ss, two bytes each.
pub const SEGMENTS: u64 = PC + 2 * WORD;
/// The pointer to the extended state.
pub const STATE: u64 = SEGMENTS + 5 * WORD;
/// Size in bytes of the signal frame without the extended state.
pub const LEN: u64 = 440;

/// The extended state (Intel SDM volume 1, 13.4; asm/sigcontext.h, `struct _fpx_sw_bytes`).
/// Offsets are from its first byte.
pub mod extended {
    /// Size in bytes of the FXSAVE area.
    pub const FXSAVE: u64 = 512;
    /// Size in bytes of the FXSAVE area and the XSAVE header after it.
    pub const LEGACY: u64 = 576;
    /// Offset of the part of the FXSAVE area in which the kernel describes the extended state.
    pub const SOFTWARE: u64 = 464;
    /// First word of the kernel's description of the extended state, at [`SOFTWARE`].
    pub const MAGIC1: u32 = 0x4650_5853;
    /// Last word of the extended state.
    pub const MAGIC2: u32 = 0x4650_5845;
}

const _: () = {
    assert!(REGISTERS == 48 && PC == 176 && SEGMENTS == 192 && STATE == 232);
};
