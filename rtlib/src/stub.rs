//! The stubs that trampolines call.
//!
//! A trampoline's hook is `push rax; mov eax, ID; call [CELL]; pop rax`: on entry here [rsp] holds
//! the way back into the trampoline, [rsp+8] the application's rax, and rsp+16 is the
//! application's stack pointer at the probe point, the address of the return address.
//!
//! A stub preserves every register and the flags. It uses 96 bytes of the application's stack and
//! what the fast path's compiled code needs, under 256 in all.

use core::arch::naked_asm;
use core::mem::offset_of;

use crate::entry::{ipath_fast_entry, ipath_slow_entry, ipath_verified_entry};
use crate::exit::{ipath_fast_exit, ipath_slow_exit};
use crate::thread::{Saved, Thread};

/// Bytes between the stub's stack pointer after its pushes and the application's.
const PUSHED: usize = 9 * 8 + 16;

macro_rules! stub {
    ($(#[$doc:meta])* $name:ident, $fast:path, $slow:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
            // The registers a call may change. Also those an exit's value is in, and those that
            // callers compiled with -fipa-ra rely on.
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "push r8",
            "push r9",
            "push r10",
            "push r11",
            "mov edi, eax", // the function id
            "lahf",         // flags but overflow into ah
            "seto al",      // overflow into al: both cheaper than pushf and popf
            "push rax",
            "lea rsi, [rsp + {pushed}]", // the slot
            "mov rdx, rbp",
            "call {fast}",
            "test rax, rax",
            "jnz 2f",
            "1:",
            "pop rax",
            "add al, 0x7f", // sets overflow again where al is 1
            "sahf",
            "pop r11",
            "pop r10",
            "pop r9",
            "pop r8",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop rcx",
            "ret",
            // The slow path, rax the thread. The callee-saved registers have their values from the
            // probe point again.
            "2:",
            "mov [rax + {rbx}], rbx",
            "mov [rax + {rbp}], rbp",
            "mov [rax + {r12}], r12",
            "mov [rax + {r12} + 8], r13",
            "mov [rax + {r12} + 16], r14",
            "mov [rax + {r12} + 24], r15",
            "mov [rax + {saved_rsp}], rsp",
            "mov rbx, rax",           // the thread, kept over the calls
            "lea r12, [rsp + {pushed}]", // the slot
            "mov rsp, [rax + {private_stack}]",
            // Signals stay pending: a handler must not run on the private stack.
            "lea rdi, [rbx + {signal_mask}]",
            "call {block_signals}",
            // The function id is in the hook's `mov eax, ID`, five bytes that end where the
            // six-byte call began that came here.
            "mov rax, [rbx + {saved_rsp}]",
            "mov rax, [rax + 9*8]",
            "mov r13d, [rax - 10]",
            "sub rsp, 256",
            "movups [rsp], xmm0",
            "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2",
            "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4",
            "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6",
            "movups [rsp + 112], xmm7",
            "movups [rsp + 128], xmm8",
            "movups [rsp + 144], xmm9",
            "movups [rsp + 160], xmm10",
            "movups [rsp + 176], xmm11",
            "movups [rsp + 192], xmm12",
            "movups [rsp + 208], xmm13",
            "movups [rsp + 224], xmm14",
            "movups [rsp + 240], xmm15",
            "cld",
            "mov rdi, rbx",
            "mov esi, r13d",
            "mov rdx, r12",
            "call {slow}",
            "movups xmm0, [rsp]",
            "movups xmm1, [rsp + 16]",
            "movups xmm2, [rsp + 32]",
            "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]",
            "movups xmm5, [rsp + 80]",
            "movups xmm6, [rsp + 96]",
            "movups xmm7, [rsp + 112]",
            "movups xmm8, [rsp + 128]",
            "movups xmm9, [rsp + 144]",
            "movups xmm10, [rsp + 160]",
            "movups xmm11, [rsp + 176]",
            "movups xmm12, [rsp + 192]",
            "movups xmm13, [rsp + 208]",
            "movups xmm14, [rsp + 224]",
            "movups xmm15, [rsp + 240]",
            // Back on the application's stack before signals are let in again.
            "mov rsp, [rbx + {saved_rsp}]",
            "lea rdi, [rbx + {signal_mask}]",
            "mov r12, [rbx + {r12}]",
            "mov r13, [rbx + {r12} + 8]",
            "mov rbp, [rbx + {rbp}]",
            "mov rbx, [rbx + {rbx}]",
            "call {restore_signals}",
            "jmp 1b",
            fast = sym $fast,
            slow = sym $slow,
            pushed = const PUSHED,
            rbx = const offset_of!(Thread, saved) + offset_of!(Saved, rbx),
            rbp = const offset_of!(Thread, saved) + offset_of!(Saved, rbp),
            r12 = const offset_of!(Thread, saved) + offset_of!(Saved, r12_15),
            saved_rsp = const offset_of!(Thread, saved_rsp),
            private_stack = const offset_of!(Thread, private_stack),
            signal_mask = const offset_of!(Thread, signal_mask),
            block_signals = sym block_signals,
            restore_signals = sym restore_signals,
            );
        }
    };
}

stub!(
    /// Called by the hook of an entry.
    ipath_entry_stub,
    ipath_fast_entry,
    ipath_slow_entry
);
stub!(
    /// The same, never content with a walk that it remembers.
    ipath_verified_entry_stub,
    ipath_verified_entry,
    ipath_slow_entry
);
stub!(
    /// Called by the hook of an exit.
    ipath_exit_stub,
    ipath_fast_exit,
    ipath_slow_exit
);

/// Blocks every signal; rdi is where the mask in force goes. rt_sigprocmask, system call 14: rdi
/// how, rsi new mask, rdx old mask, r10 bytes of a mask.
#[unsafe(naked)]
unsafe extern "C" fn block_signals() {
    naked_asm!(
        "mov rdx, rdi",
        "mov edi, 2", // SIG_SETMASK
        "push -1",    // every signal
        "mov rsi, rsp",
        "mov r10d, 8",
        "mov eax, 14",
        "syscall",
        "add rsp, 8",
        "ret",
    );
}

/// Puts the mask at rdi in force again.
#[unsafe(naked)]
unsafe extern "C" fn restore_signals() {
    naked_asm!(
        "mov rsi, rdi",
        "mov edi, 2", // SIG_SETMASK
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, 14",
        "syscall",
        "ret",
    );
}
