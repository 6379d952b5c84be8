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
    "mov rax, rdi", // the result: the destination
    "mov rcx, rdx", // the count
    "rep movsb",    // the direction flag is clear at a call, and the stub clears it
    "ret",          // to the caller
    ".globl memmove",
    ".hidden memmove",
    "memmove:",
    "mov rax, rdi", // the result: the destination
    "mov rcx, rdx", // the count
    "mov r8, rdi",  // how far the destination is
    "sub r8, rsi",  // above the source
    "cmp r8, rdx",  // destination - source < count, unsigned: the tail would be overwritten
    "jb 1f",        // it overlaps: backwards
    "rep movsb",    // forwards
    "ret",          // to the caller
    "1:",
    "lea rdi, [rdi + rdx - 1]", // the last byte of the destination,
    "lea rsi, [rsi + rdx - 1]", // and of the source
    "std",                      // copy from the end
    "rep movsb",                // down to the first
    "cld",                      // as it is at every call
    "ret",                      // to the caller
    ".globl memset",
    ".hidden memset",
    "memset:",
    "mov r8, rdi",  // the destination, kept
    "mov eax, esi", // the byte
    "mov rcx, rdx", // the count
    "rep stosb",    // fills all
    "mov rax, r8",  // the result: the destination
    "ret",          // to the caller
    ".globl memcmp",
    ".hidden memcmp",
    ".globl bcmp",
    ".hidden bcmp",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",                  // equal
    "mov rcx, rdx",                  // the count
    "cmp rcx, rcx",                  // equal flags, for a count of 0
    "repe cmpsb",                    // up to the first difference
    "je 1f",                         // there is none
    "movzx eax, byte ptr [rdi - 1]", // the byte that differs,
    "movzx ecx, byte ptr [rsi - 1]", // and that of the other
    "sub eax, ecx",                  // their difference
    "1:",
    "ret", // to the caller
);

// The compiler's core library names this routine in its unwind tables; nothing unwinds here.
global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2" // never reached
);
