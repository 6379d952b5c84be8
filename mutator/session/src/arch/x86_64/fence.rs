//! The fence that orders the reads of the clock in the image.

/// The bytes of the instruction `lfence`.
pub const FENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
/// The replacement of [`FENCE`]: `nop dword ptr [rax]`.
pub const NO_FENCE: [u8; 3] = [0x0f, 0x1f, 0x00];
