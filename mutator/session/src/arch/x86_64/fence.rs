//! The fence that orders the reads of the clock in the image.

/// `lfence`.
pub const FENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
/// What takes its place: `nop dword ptr [rax]`.
pub const NO_FENCE: [u8; 3] = [0x0f, 0x1f, 0x00];
