//! The stack (System V psABI 3.2.2).

/// Bytes below the stack pointer that a function may use without moving it. Signal handlers do not
/// overwrite them, and hooks of points start below them.
pub const RED_ZONE: u64 = 128;
