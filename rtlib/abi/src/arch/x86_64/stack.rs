//! The stack (System V psABI 3.2.2).

/// Bytes below the stack pointer that a function may use without moving it. No signal handler
/// overwrites them, and hooks of points begin below them.
pub const RED_ZONE: u64 = 128;
