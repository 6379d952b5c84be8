//! The signals of a thread that takes the slow way.

use core::arch::naked_asm;
use core::mem::offset_of;

use abi::image::Parameters;

use crate::os::parameters::ipath_parameters;

/// Blocks every signal; rdi is where the mask in force goes. rt_sigprocmask, system call 14: rdi
/// how, rsi new mask, rdx old mask, r10 bytes of a mask.
#[unsafe(naked)]
pub(in crate::probe) unsafe extern "C" fn block_signals(mask: *mut u64) {
    naked_asm!(
        "cmp dword ptr [rip + {parameters} + {system_calls}], 0",
        "je 2f", // no call may be made
        "mov rdx, rdi",
        "mov edi, 2", // SIG_SETMASK
        "push -1",    // every signal
        "mov rsi, rsp",
        "mov r10d, 8",
        "mov eax, 14",
        "syscall",
        "add rsp, 8",
        "2: ret",
        parameters = sym ipath_parameters,
        system_calls = const offset_of!(Parameters, system_calls),
    );
}

/// Puts the mask at rdi in force again.
#[unsafe(naked)]
pub(in crate::probe) unsafe extern "C" fn restore_signals(mask: *const u64) {
    naked_asm!(
        "cmp dword ptr [rip + {parameters} + {system_calls}], 0",
        "je 2f",
        "mov rsi, rdi",
        "mov edi, 2", // SIG_SETMASK
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, 14",
        "syscall",
        "2: ret",
        parameters = sym ipath_parameters,
        system_calls = const offset_of!(Parameters, system_calls),
    );
}
