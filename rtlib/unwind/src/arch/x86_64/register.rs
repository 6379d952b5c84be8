//! Registers by their DWARF numbers (psABI figure 3.36).

use abi::arch::registers::OTHERS;

/// The stack pointer, rsp.
pub const SP: usize = 7;
/// The frame pointer, rbp.
pub const FP: usize = 6;
/// The return address.
pub const RA: usize = 16;
/// Columns in use: the sixteen general registers and the return address.
pub const COLUMNS: usize = 17;
/// Callee-saved registers other than the frame pointer: rbx, and r12 to r15.
pub const SAVED: [usize; OTHERS] = [3, 12, 13, 14, 15];
/// Offset in bytes of the CFA from the stack pointer at a function's entry: the size of the return
/// address.
pub const CFA_AT_ENTRY: i64 = 8;
