//! What code without a library needs: an end for panics and the memory functions the compiler
//! calls.

use core::arch::global_asm;
use core::panic::PanicInfo;

use super::abort::abort;

/// The runtime's code is written so that nothing panics; should it, a trap names the place in a
/// core, where unwinding through the application would hide it.
#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    abort()
}

// System V calling convention: rdi destination, rsi source or byte, rdx count; rax the destination.
global_asm!(
    ".globl memcpy",
    ".hidden memcpy",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb", // the direction flag is clear at a call, and the stub clears it
    "ret",
    ".globl memmove",
    ".hidden memmove",
    "memmove:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx", // destination - source < count, unsigned: the tail would be overwritten
    "jb 1f",
    "rep movsb",
    "ret",
    "1:",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std", // copy from the end
    "rep movsb",
    "cld",
    "ret",
    ".globl memset",
    ".hidden memset",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    ".globl memcmp",
    ".hidden memcmp",
    ".globl bcmp",
    ".hidden bcmp",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",
    "mov rcx, rdx",
    "cmp rcx, rcx", // equal flags, for a count of 0
    "repe cmpsb",
    "je 1f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub eax, ecx",
    "1:",
    "ret",
);

// The compiler's core library names this routine in its unwind tables; nothing unwinds here.
global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);
