//! The handler of breakpoints in place of jumps.

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

/// The handler of SIGTRAP: rdi is the signal, rsi its `siginfo_t`, rdx the `ucontext_t`. Traps of
/// the program are passed on to its own handler, or have the effect that they would have had.
///
/// # Safety
/// Only for the kernel, with every signal blocked.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_trap_handler() {
    naked_asm!(
        "mov rax, [rdx + {pc}]",        // the program counter, after the breakpoint
        "dec rax",                      // the address of the breakpoint, which is one byte
        "movabs rcx, {hash}",           // hash multiplier, as in `abi::image::trap_bucket`
        "imul rcx, rax",                // multiply the address
        "shr rcx, {shift}",             // the first bucket, from the highest bits
        "lea r8, [rip + {traps}]",      // the table of breakpoints
        "1:",
        "mov r9, rcx",                  // copy the bucket number
        "shl r9, 4",                    // convert it to bytes, 16 per bucket
        "mov r10, [r8 + r9]",           // the breakpoint in this bucket
        "cmp r10, rax",                 // is it the right one?
        "je 2f",                            // yes: continue in its trampoline
        "test r10, r10",                // is the bucket free?
        "jz 3f",                            // yes: the trap is not one of ours
        "inc ecx",                      // the next bucket
        "and ecx, {mask}",              // wrap around to the first bucket
        "jmp 1b",                           // check it
        "2:",
        "mov r10, [r8 + r9 + 8]",       // the trampoline of the breakpoint
        "mov [rdx + {pc}], r10",        // resume the thread there
        "ret",                          // return to the restorer
        // The trap is not one of ours.
        "3:",
        "lea r8, [rip + {actions}]",    // the previous action of SIGTRAP
        "mov rax, [r8 + {old}]",        // its handler
        "cmp rax, 1",                   // compare it with SIG_IGN
        "ja 4f",                        // above: a function of the program
        "jb {default}",                 // below: SIG_DFL
        "cmp dword ptr [rsi + {code}], 0", // did the processor raise the signal?
        "jg {default}",                 // yes: end the program, as the kernel would
        "ret",                              // no: ignore it and return to the restorer
        // The program's handler returns to its own restorer. This code may be unmapped while the
        // handler still runs.
        "4:",
        "bt dword ptr [r8 + {old} + 8], {has_restorer}", // does the action have a restorer?
        "jnc 6f",                           // no: keep the return address
        "mov rcx, [r8 + {old} + 16]",   // the program's restorer
        "mov [rsp], rcx",               // make it the return address of the handler
        "6:",
        "jmp rax",                      // call the handler with the same arguments
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

/// The default action of SIGTRAP: ends the program as soon as the handler returns.
///
/// # Safety
/// Only as the end of [`ipath_trap_handler`].
#[unsafe(naked)]
unsafe extern "C" fn end_program() {
    naked_asm!(
        "sub rsp, 40",                  // room for a `struct sigaction`, and alignment
        "mov qword ptr [rsp], 0",       // the handler: SIG_DFL
        "mov qword ptr [rsp + 8], 0",   // no flags
        "mov qword ptr [rsp + 16], 0",  // no restorer
        "mov qword ptr [rsp + 24], 0",  // no mask
        "mov eax, {sigaction}",             // rax: the system call
        "mov edi, {trap}",              // rdi: the signal
        "mov rsi, rsp",                 // rsi: the new action
        "xor edx, edx",                 // rdx: the old action is not needed
        "mov r10d, 8",                  // r10: size of a mask
        "syscall",                          // clobbers rcx and r11
        "mov eax, {getpid}",                // rax: the system call
        "syscall",                          // clobbers rcx and r11
        "mov r9d, eax",                 // keep the process id in a preserved register
        "mov eax, {gettid}",                // rax: the system call
        "syscall",                          // clobbers rcx and r11
        "mov edi, r9d",                 // rdi: the process id
        "mov esi, eax",                 // rsi: the thread id
        "mov edx, {trap}",              // rdx: the signal, pending until the handler returns
        "mov eax, {tgkill}",                // rax: the system call
        "syscall",                          // clobbers rcx and r11
        "add rsp, 40",                  // drop the action
        "ret",                          // return to the restorer
        trap = const SIGTRAP,
        sigaction = const number::RT_SIGACTION,
        getpid = const number::GETPID,
        gettid = const number::GETTID,
        tgkill = const number::TGKILL,
    );
}

/// The code that the handler returns to: rt_sigreturn.
///
/// # Safety
/// Only for the kernel.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_trap_restorer() {
    naked_asm!(
        "mov rax, {sigreturn}",         // `abi::arch::signal_frame::RESTORER`, known to unwinders
        "syscall",                          // does not return
        sigreturn = const number::RT_SIGRETURN,
    );
}
