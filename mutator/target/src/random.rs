//! Random numbers from the kernel.

/// An unpredictable number, uniform over all values.
pub fn number() -> u32 {
    u32::from_ne_bytes(bytes())
}

/// Unpredictable bytes, at most 256.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most `bytes.len()` bytes there. It always returns up to 256
    // bytes in one call (getrandom(2)).
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    bytes
}
