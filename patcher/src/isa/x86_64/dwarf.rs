//! DWARF register numbers in unwind tables (psABI 3.6.2).

use gimli::{Register, X86_64};

/// The return address.
pub const RETURN_ADDRESS: Register = X86_64::RA;
/// The stack pointer.
pub const STACK_POINTER: Register = X86_64::RSP;
/// The frame pointer.
pub const FRAME_POINTER: Register = X86_64::RBP;
/// The other registers that a function preserves.
pub const KEPT: [Register; 5] = [
    X86_64::RBX,
    X86_64::R12,
    X86_64::R13,
    X86_64::R14,
    X86_64::R15,
];
