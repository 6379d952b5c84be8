//! The hooks of trampolines: `push rax; mov eax, ID; call [rip + CELL]; pop rax`.

/// Bytes from the slot down to the place of the address that the hook's call returns to. rax is
/// between the two.
pub const WAY_BACK: u64 = 16;
/// Size of `mov eax, ID; call [rip + CELL]`, in bytes.
pub const LEN: u64 = 11;

/// True if the bytes are the first of `mov eax, ID; call [rip + CELL]`.
pub fn begins_with(bytes: [u8; 8]) -> bool {
    matches!(bytes, [0xb8, _, _, _, _, 0xff, 0x15, _])
}
