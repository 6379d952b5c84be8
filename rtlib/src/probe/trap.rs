//! Breakpoints that stand for a jump to a trampoline, where no jump has room: the handler of their
//! signal sends the thread there.

use core::arch::naked_asm;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

use abi::arch::signal_frame;
use abi::image::{TRAP_BITS, TRAP_BUCKETS, TRAP_HASH, Trap, TrapActions};

/// Where breakpoints lead.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_traps: [Trap; TRAP_BUCKETS] = [const {
    Trap {
        address: AtomicU64::new(0),
        target: AtomicU64::new(0),
    }
}; TRAP_BUCKETS];

/// What SIGTRAP did before.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_trap_actions: TrapActions = TrapActions {
    new: [const { AtomicU64::new(0) }; 4],
    old: [const { AtomicU64::new(0) }; 4],
};

/// Bytes from a `ucontext_t` to the interrupted program counter. The frame begins with the
/// restorer, and the context follows.
const PC: u64 = signal_frame::PC - size_of::<u64>() as u64;
/// Bytes from a `siginfo_t` to `si_code`.
const SI_CODE: usize = 8;

/// The handler of SIGTRAP: rdi the signal, rsi its `siginfo_t`, rdx the `ucontext_t`. A trap that
/// is none of ours is passed on to the program's own handler, or does what it would have done.
///
/// # Safety
/// For the kernel alone, with every signal blocked.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_trap_handler() {
    naked_asm!(
        "mov rax, [rdx + {rip}]",
        "dec rax", // the thread stands after the breakpoint
        "movabs rcx, {hash}",
        "imul rcx, rax",
        "shr rcx, {shift}",
        "lea r8, [rip + {traps}]",
        "1:",
        "mov r9, rcx",
        "shl r9, 4",
        "mov r10, [r8 + r9]",
        "cmp r10, rax",
        "je 2f",
        "test r10, r10",
        "jz 3f",
        "inc ecx",
        "and ecx, {mask}",
        "jmp 1b",
        "2:",
        "mov r10, [r8 + r9 + 8]",
        "mov [rdx + {rip}], r10",
        "ret",
        // Not ours.
        "3:",
        "lea r8, [rip + {actions}]",
        "mov rax, [r8 + {old}]",
        "cmp rax, 1",
        "ja 4f",
        "jb {default}", // SIG_DFL
        // Ignored, unless the processor raised it.
        "cmp dword ptr [rsi + {code}], 0",
        "jg {default}",
        "ret",
        // The program's handler returns to what it would without us, so that it may stay for longer than this does.
        "4:",
        "bt dword ptr [r8 + {old} + 8], {has_restorer}",
        "jnc 6f",
        "mov rcx, [r8 + {old} + 16]",
        "mov [rsp], rcx",
        "6:",
        "jmp rax",
        rip = const PC,
        hash = const TRAP_HASH,
        shift = const 64 - TRAP_BITS,
        mask = const TRAP_BUCKETS - 1,
        traps = sym ipath_traps,
        actions = sym ipath_trap_actions,
        old = const offset_of!(TrapActions, old),
        code = const SI_CODE,
        has_restorer = const signal_frame::SA_RESTORER.trailing_zeros(),
        default = sym end_program,
    );
}

/// What SIGTRAP does by default: it ends the program, as soon as the handler is left.
///
/// # Safety
/// For [`ipath_trap_handler`] alone, as its end.
#[unsafe(naked)]
unsafe extern "C" fn end_program() {
    naked_asm!(
        // Zeroes are SIG_DFL.
        "sub rsp, 40",
        "mov qword ptr [rsp], 0",
        "mov qword ptr [rsp + 8], 0",
        "mov qword ptr [rsp + 16], 0",
        "mov qword ptr [rsp + 24], 0",
        "mov eax, 13", // rt_sigaction
        "mov edi, 5",
        "mov rsi, rsp",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        "mov eax, 39", // getpid
        "syscall",
        "mov r9d, eax",
        "mov eax, 186", // gettid
        "syscall",
        "mov edi, r9d",
        "mov esi, eax",
        "mov edx, 5",
        "mov eax, 234", // tgkill
        "syscall",
        "add rsp, 40",
        "ret",
    );
}

/// What the handler returns to: rt_sigreturn.
///
/// # Safety
/// For the kernel alone.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_trap_restorer() {
    naked_asm!("mov rax, 15", "syscall");
}
