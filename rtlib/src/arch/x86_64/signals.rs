//! Signal masks.

/// Mode of rt_sigprocmask(2): the mask replaces the current one (asm-generic/signal-defs.h).
pub const SIG_SETMASK: u32 = 2;
/// Size of a signal mask, in bytes.
pub const MASK: u32 = 8;

/// Defines `$block(old: *mut u64)`, which blocks every signal, and `$restore(old: *const u64)`.
/// Both do nothing if the word `$allowed` bytes from the static `$parameters` is 0: system calls
/// are not allowed. Probes call them on the program's stack, and compiled code would use more of
/// it.
macro_rules! define {
    ($(#[$block_doc:meta])* $block:ident, $(#[$restore_doc:meta])* $restore:ident, $parameters:path, $allowed:expr) => {
        $(#[$block_doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $block(old: *mut u64) {
            core::arch::naked_asm!(
                "cmp dword ptr [rip + {parameters} + {allowed}], 0", // are system calls allowed?
                "je 2f",                    // no: leave the mask as it is
                "mov rdx, rdi",            // rdx: destination of the old mask
                "mov edi, {set}",          // rdi: replace the mask
                "push -1",                 // a mask of every signal
                "mov rsi, rsp",            // rsi: the new mask
                "mov r10d, {mask}",        // r10: size of a mask
                "mov eax, {sigprocmask}",   // rax: the system call
                "syscall",                 // clobbers rcx and r11
                "add rsp, 8",              // drop the new mask
                "2: ret",                   // return to the caller
                parameters = sym $parameters,
                allowed = const $allowed,
                set = const $crate::arch::signals::SIG_SETMASK,
                mask = const $crate::arch::signals::MASK,
                sigprocmask = const $crate::arch::system_call::number::RT_SIGPROCMASK,
            );
        }

        $(#[$restore_doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $restore(old: *const u64) {
            core::arch::naked_asm!(
                "cmp dword ptr [rip + {parameters} + {allowed}], 0", // are system calls allowed?
                "je 2f",                    // no: leave the mask as it is
                "mov rsi, rdi",            // rsi: the new mask
                "mov edi, {set}",          // rdi: replace the mask
                "xor edx, edx",            // rdx: do not store the old mask
                "mov r10d, {mask}",        // r10: size of a mask
                "mov eax, {sigprocmask}",   // rax: the system call
                "syscall",                 // clobbers rcx and r11
                "2: ret",                   // return to the caller
                parameters = sym $parameters,
                allowed = const $allowed,
                set = const $crate::arch::signals::SIG_SETMASK,
                mask = const $crate::arch::signals::MASK,
                sigprocmask = const $crate::arch::system_call::number::RT_SIGPROCMASK,
            );
        }
    };
}

pub(crate) use define;
