//! The handler of breakpoints that stand for jumps.

use core::arch::naked_asm;
use core::mem::offset_of;

use abi::arch::signal_frame;
use abi::image::{TRAP_BITS, TRAP_BUCKETS, TRAP_HASH, TrapActions};

use super::system_call::number;
use crate::probe::trap::{ipath_trap_actions, ipath_traps};

/// Bytes from a `ucontext_t` to the interrupted program counter. The frame begins with the
/// restorer, and the context follows.
const PC: u64 = signal_frame::PC - size_of::<u64>() as u64;
/// Bytes from a `siginfo_t` to `si_code`.
const SI_CODE: usize = 8;
/// The signal of breakpoints.
const SIGTRAP: u32 = 5;

/// The handler of SIGTRAP: rdi the signal, rsi its `siginfo_t`, rdx the `ucontext_t`. A trap that
/// is none of ours is passed on to the program's own handler, or does what it would have done.
///
/// # Safety
/// For the kernel alone, with every signal blocked.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_trap_handler() {
    naked_asm!(
        "mov rax, [rdx + {pc}]",        // where the thread stands: after the breakpoint,
        "dec rax",                      // which has one byte
        "movabs rcx, {hash}",           // its first bucket, as `abi::image::trap_bucket` has it:
        "imul rcx, rax",                // the product's
        "shr rcx, {shift}",             // highest bits
        "lea r8, [rip + {traps}]",      // the table
        "1:",
        "mov r9, rcx",                  // the bucket's number
        "shl r9, 4",                    // in bytes: each has 16
        "mov r10, [r8 + r9]",           // the breakpoint of this bucket
        "cmp r10, rax",                 // is it the one?
        "je 2f",                            // yes
        "test r10, r10",                // a free bucket ends the search
        "jz 3f",                            // the trap is not ours
        "inc ecx",                      // the next bucket,
        "and ecx, {mask}",              // after the last one the first
        "jmp 1b",                           // look there
        "2:",
        "mov r10, [r8 + r9 + 8]",       // its trampoline,
        "mov [rdx + {pc}], r10",        // where the thread goes on
        "ret",                          // to the restorer
        // Not ours.
        "3:",
        "lea r8, [rip + {actions}]",    // what SIGTRAP did before
        "mov rax, [r8 + {old}]",        // its handler
        "cmp rax, 1",                   // SIG_IGN
        "ja 4f",                        // above: a function of the program's
        "jb {default}",                 // below: SIG_DFL
        "cmp dword ptr [rsi + {code}], 0", // ignored, unless the processor raised it:
        "jg {default}",                 // then the kernel ends the program, too
        "ret",                              // to the restorer
        // The program's handler returns to what it would without us, so that it may stay for longer than this does.
        "4:",
        "bt dword ptr [r8 + {old} + 8], {has_restorer}", // has its action one?
        "jnc 6f",                           // none: the return address stays
        "mov rcx, [r8 + {old} + 16]",   // that,
        "mov [rsp], rcx",               // as this handler's return address
        "6:",
        "jmp rax",                      // with the arguments of this handler
        pc = const PC,
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
        "sub rsp, 40",                  // room for a `struct sigaction`, and alignment
        "mov qword ptr [rsp], 0",       // the handler: SIG_DFL
        "mov qword ptr [rsp + 8], 0",   // no flags
        "mov qword ptr [rsp + 16], 0",  // no restorer
        "mov qword ptr [rsp + 24], 0",  // no mask
        "mov eax, {sigaction}",             // rax: the call
        "mov edi, {trap}",              // rdi: the signal
        "mov rsi, rsp",                 // rsi: the new action
        "xor edx, edx",                 // rdx: nothing wants the old one
        "mov r10d, 8",                  // r10: size of a mask
        "syscall",                          // takes rcx and r11
        "mov eax, {getpid}",                // rax: the call
        "syscall",                          // takes rcx and r11
        "mov r9d, eax",                 // the process, which the next call leaves alone
        "mov eax, {gettid}",                // rax: the call
        "syscall",                          // takes rcx and r11
        "mov edi, r9d",                 // rdi: the process
        "mov esi, eax",                 // rsi: the thread
        "mov edx, {trap}",              // rdx: the signal, which stays pending until the handler is left
        "mov eax, {tgkill}",                // rax: the call
        "syscall",                          // takes rcx and r11
        "add rsp, 40",                  // drops the action
        "ret",                          // to the restorer
        trap = const SIGTRAP,
        sigaction = const number::RT_SIGACTION,
        getpid = const number::GETPID,
        gettid = const number::GETTID,
        tgkill = const number::TGKILL,
    );
}

/// What the handler returns to: rt_sigreturn.
///
/// # Safety
/// For the kernel alone.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_trap_restorer() {
    naked_asm!(
        "mov rax, {sigreturn}",         // `abi::arch::signal_frame::RESTORER`: unwinders know it
        "syscall",                          // does not return
        sigreturn = const number::RT_SIGRETURN,
    );
}
