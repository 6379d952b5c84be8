//! Signal masks.

/// How rt_sigprocmask(2) takes a mask: it replaces the one in force (asm-generic/signal-defs.h).
pub const SIG_SETMASK: u32 = 2;
/// Size of a mask.
pub const MASK: u32 = 8;

/// Defines `$block(old: *mut u64)`, which blocks every signal, and `$restore(old: *const u64)`. Both
/// do nothing if the word `$allowed` bytes from the static `$parameters` is 0: no system call may
/// be made. Probes call them on the program's stack, of which compiled code would take more.
macro_rules! define {
    ($(#[$block_doc:meta])* $block:ident, $(#[$restore_doc:meta])* $restore:ident, $parameters:path, $allowed:expr) => {
        $(#[$block_doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $block(old: *mut u64) {
            core::arch::naked_asm!(
                "cmp dword ptr [rip + {parameters} + {allowed}], 0", // may a call be made?
                "je 2f",                    // none: signals stay as they are
                "mov rdx, rdi",            // rdx: where the old mask goes
                "mov edi, {set}",          // rdi: how
                "push -1",                 // every signal
                "mov rsi, rsp",            // rsi: the new mask
                "mov r10d, {mask}",        // r10: size of a mask
                "mov eax, {sigprocmask}",   // rax: the call
                "syscall",                 // takes rcx and r11
                "add rsp, 8",              // drops the new mask
                "2: ret",                   // to the caller
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
                "cmp dword ptr [rip + {parameters} + {allowed}], 0", // may a call be made?
                "je 2f",                    // none: signals stay as they are
                "mov rsi, rdi",            // rsi: the new mask
                "mov edi, {set}",          // rdi: how
                "xor edx, edx",            // rdx: nothing wants the old mask
                "mov r10d, {mask}",        // r10: size of a mask
                "mov eax, {sigprocmask}",   // rax: the call
                "syscall",                 // takes rcx and r11
                "2: ret",                   // to the caller
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
