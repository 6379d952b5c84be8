//! Instruction bytes.

/// The bytes of the instruction `syscall`.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// The bytes of the instructions `syscall; ret`.
pub const SYSTEM_CALL_AND_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
/// The distance from a breakpoint to the program counter that a thread reports after hitting it, in
/// bytes.
pub const PAST_BREAKPOINT: u64 = 1;
