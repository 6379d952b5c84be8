//! Functions for tests of what code and stacks tell.

use core::arch::{global_asm, naked_asm};

use super::hook;

/// A hook up to where its call returns to.
pub static HOOK: [u8; hook::LEN as usize] = [0xb8, 7, 0, 0, 0, 0xff, 0x15, 1, 2, 3, 4];

/// A call.
pub const CALL: [u8; 2] = [0xff, 0xd0];

/// The address its call returns to.
#[unsafe(naked)]
pub extern "C" fn own_return_address() -> u64 {
    naked_asm!(
        "mov rax, [rsp]", // the return address is on top of the stack
        "ret",            // with the address in rax
    );
}

// As GCC begins a function with a local of 32 bytes' alignment and arguments on the stack.
global_asm!(
    ".pushsection .text",
    "ipath_test_realigned:",
    ".cfi_startproc",
    "lea r10, [rsp + 8]", // the CFA
    ".cfi_def_cfa r10, 0",
    "and rsp, -32",                       // alignment of the local
    "push [r10 - 8]",                     // a copy of the return address
    "push rbp",                           // the caller's frame pointer
    ".cfi_escape 0x10, 6, 2, 0x76, 0",    // rbp at rbp + 0
    "mov rbp, rsp",                       // the frame pointer
    "push r10",                           // the CFA, for the way back
    ".cfi_escape 0x0f, 3, 0x76, 0x78, 6", // cfa = *(rbp - 8)
    "sub rsp, 8",                         // alignment of the call
    "call rdi",                           // the argument
    "mov r10, [rbp - 8]",                 // the CFA
    "leave",                              // the caller's frame pointer
    "lea rsp, [r10 - 8]",                 // the return address
    ".cfi_def_cfa rsp, 8",
    "ret", // to the caller
    ".cfi_endproc",
    ".popsection",
);

unsafe extern "C" {
    fn ipath_test_realigned(function: extern "C" fn() -> u64) -> u64;
}

/// Calls a function from a realigned frame, and returns its result.
pub fn from_realigned_frame(function: extern "C" fn() -> u64) -> u64 {
    // SAFETY: it calls the function and returns what that does.
    unsafe { ipath_test_realigned(function) }
}
