//! Locations at which trampolines and stubs store the registers of a call. Offsets are in bytes;
//! the slot is the address of the return address.

/// Offset of xmm0, on the slow path, down from the top of a thread's private stack. The next
/// registers follow it.
pub const VECTORS: u64 = 256;
/// Offsets of C's arguments in their order, rdi, rsi, rdx, rcx, r8 and r9 (psABI 3.2.3), down from
/// the slot.
pub const ARGUMENTS: [u64; 6] = [64, 56, 48, 40, 32, 24];
/// Offset of the first argument of C's functions, down from the slot.
pub const FIRST_ARGUMENT: u64 = ARGUMENTS[0];
/// Offset of the third argument of C's functions, down from the slot.
pub const THIRD_ARGUMENT: u64 = ARGUMENTS[2];
/// Offset of the last argument in a register of C's functions, down from the slot.
pub const LAST_ARGUMENT: u64 = ARGUMENTS[5];
/// Offset of rax, in which functions return their result, down from the slot.
pub const RESULT: u64 = 8;
/// Offset of the first argument of Go's functions, down from the slot. They take it in rax since Go
/// 1.17 (ABIInternal).
pub const FIRST_ARGUMENT_OF_GO: u64 = RESULT;
