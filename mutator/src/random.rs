//! Random numbers of the kernel's.

/// A number that nobody can guess.
pub fn number() -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: the kernel writes at most that many bytes there. So few are always given at once
    // (getrandom(2)).
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes)
}
