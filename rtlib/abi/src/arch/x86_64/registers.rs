//! Registers.

/// The number of callee-saved registers besides the stack pointer and the frame pointer: rbx, and
/// r12 to r15.
pub const OTHERS: usize = 5;
