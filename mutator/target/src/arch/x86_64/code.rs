//! Code as bytes.

/// `syscall`.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `syscall; ret`.
pub const SYSTEM_CALL_AND_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
/// Bytes from a breakpoint to where a thread stands that has come to it.
pub const PAST_BREAKPOINT: u64 = 1;
