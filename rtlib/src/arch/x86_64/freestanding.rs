//! Routines that a library would provide otherwise: a panic handler, and the memory functions that
//! the compiler calls.

use core::arch::global_asm;
use core::panic::PanicInfo;

use super::abort::abort;

/// The runtime's code is written so that it never panics. If it does, a trap shows the place in a
/// core dump. Unwinding through the application would hide it.
#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    abort()
}

// System V calling convention: rdi is the destination, rsi the source or byte, rdx the count, rax
// the returned destination.
global_asm!(
    ".globl memcpy",
    ".hidden memcpy",
    "memcpy:",
    "mov rax, rdi", // return the destination
    "mov rcx, rdx", // the count
    "rep movsb",    // copy forward; callers and the stub clear the direction flag
    "ret",          // return to the caller
    ".globl memmove",
    ".hidden memmove",
    "memmove:",
    "mov rax, rdi", // return the destination
    "mov rcx, rdx", // the count
    "mov r8, rdi",  // copy the destination
    "sub r8, rsi",  // destination - source
    "cmp r8, rdx",  // unsigned below: a forward copy would overwrite the source's tail
    "jb 1f",        // yes: copy backward
    "rep movsb",    // copy forward
    "ret",          // return to the caller
    "1:",
    "lea rdi, [rdi + rdx - 1]", // the last byte of the destination
    "lea rsi, [rsi + rdx - 1]", // the last byte of the source
    "std",                      // copy downward
    "rep movsb",                // copy the bytes
    "cld",                      // the ABI requires a clear direction flag
    "ret",                      // return to the caller
    ".globl memset",
    ".hidden memset",
    "memset:",
    "mov r8, rdi",  // keep the destination
    "mov eax, esi", // the byte to store
    "mov rcx, rdx", // the count
    "rep stosb",    // fill the destination
    "mov rax, r8",  // return the destination
    "ret",          // return to the caller
    ".globl memcmp",
    ".hidden memcmp",
    ".globl bcmp",
    ".hidden bcmp",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",                  // the result if all bytes are equal
    "mov rcx, rdx",                  // the count
    "cmp rcx, rcx",                  // set the flags to equal, in case the count is 0
    "repe cmpsb",                    // compare up to the first difference
    "je 1f",                         // no difference: return 0
    "movzx eax, byte ptr [rdi - 1]", // the first byte that differs
    "movzx ecx, byte ptr [rsi - 1]", // its counterpart in the second buffer
    "sub eax, ecx",                  // return their difference
    "1:",
    "ret", // return to the caller
);

// The compiler's core library refers to this routine in its unwind tables. It is never called.
global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2" // never reached
);
