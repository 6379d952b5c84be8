//! Functions for tests of code and stacks.

use core::arch::{global_asm, naked_asm};

use super::hook;

/// A hook up to the return address of its call.
pub static HOOK: [u8; hook::LEN as usize] = [0xb8, 7, 0, 0, 0, 0xff, 0x15, 1, 2, 3, 4];

/// The bytes of a call instruction.
pub const CALL: [u8; 2] = [0xff, 0xd0];

/// Returns the return address of its call.
#[unsafe(naked)]
pub extern "C" fn own_return_address() -> u64 {
    naked_asm!(
        "mov rax, [rsp]", // load the return address from the top of the stack
        "ret",            // return it in rax
    );
}

// A function prologue as GCC generates it for a local with an alignment of 32 bytes and arguments
// on the stack.
global_asm!(
    ".pushsection .text",
    "ipath_test_realigned:",
    ".cfi_startproc",
    "lea r10, [rsp + 8]", // the CFA
    ".cfi_def_cfa r10, 0",
    "and rsp, -32",                       // align the stack for the local
    "push [r10 - 8]",                     // copy the return address
    "push rbp",                           // save the caller's frame pointer
    ".cfi_escape 0x10, 6, 2, 0x76, 0",    // rbp at rbp + 0
    "mov rbp, rsp",                       // set the frame pointer
    "push r10",                           // save the CFA for the epilogue
    ".cfi_escape 0x0f, 3, 0x76, 0x78, 6", // cfa = *(rbp - 8)
    "sub rsp, 8",                         // align the stack for the call
    "call rdi",                           // call the argument
    "mov r10, [rbp - 8]",                 // reload the CFA
    "leave",                              // restore the caller's frame pointer
    "lea rsp, [r10 - 8]",                 // point to the return address
    ".cfi_def_cfa rsp, 8",
    "ret", // return to the caller
    ".cfi_endproc",
    ".popsection",
);

unsafe extern "C" {
    fn ipath_test_realigned(function: extern "C" fn() -> u64) -> u64;
}

/// Calls a function from a realigned frame, and returns its result.
pub fn from_realigned_frame(function: extern "C" fn() -> u64) -> u64 {
    // SAFETY: it calls the function and returns its result.
    unsafe { ipath_test_realigned(function) }
}
