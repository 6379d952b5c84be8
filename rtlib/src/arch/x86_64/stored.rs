//! Where trampolines and stubs store the registers of a call. Offsets are in bytes.

/// Below the top of a thread's private stack: xmm0 and those after it, on the slow path.
pub const VECTORS: u64 = 256;
/// Below the slot: rdi, rsi, rdx, rcx, r8 and r9, C's arguments in their order (psABI 3.2.3).
pub const ARGUMENTS: [u64; 6] = [64, 56, 48, 40, 32, 24];
/// The first argument of C's functions.
pub const FIRST_ARGUMENT: u64 = ARGUMENTS[0];
/// The third.
pub const THIRD_ARGUMENT: u64 = ARGUMENTS[2];
/// The last in a register.
pub const LAST_ARGUMENT: u64 = ARGUMENTS[5];
/// Below the slot: rax, in which functions return their result.
pub const RESULT: u64 = 8;
/// Go's functions have their first argument in rax since 1.17 (its ABIInternal).
pub const FIRST_ARGUMENT_OF_GO: u64 = RESULT;
