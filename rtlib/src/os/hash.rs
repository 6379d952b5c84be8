//! Hashing of addresses.

/// What a key is multiplied with; the highest bits of the product are its hash (Knuth, The Art of Computer
/// Programming 6.4: 2^64 by the golden ratio). The stubs do the same.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The uppermost `bits` of an address's hash.
#[inline(always)]
pub const fn bucket(address: u64, bits: u32) -> usize {
    (address.wrapping_mul(MULTIPLIER) >> (u64::BITS - bits)) as usize
}

/// A hash over one more value.
#[inline(always)]
pub const fn mix(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(23) ^ value).wrapping_mul(MULTIPLIER)
}
