//! Random numbers of the kernel's.

/// A number that nobody can guess.
pub fn number() -> u32 {
    u32::from_ne_bytes(bytes())
}

/// Bytes that nobody can guess; 256 at most.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most that many bytes there. So few are always given at once
    // (getrandom(2)).
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    bytes
}
