//! Hashing of addresses.

/// The multiplier of keys. The highest bits of the product are the hash (Knuth, The Art of Computer
/// Programming 6.4: 2^64 divided by the golden ratio). The stubs use it, too.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The bucket of an address in a table of 2^`bits` buckets: the highest `bits` bits of its hash.
#[inline(always)]
pub const fn bucket(address: u64, bits: u32) -> usize {
    (address.wrapping_mul(MULTIPLIER) >> (u64::BITS - bits)) as usize
}

/// The hash of the values of `hash` followed by `value`.
#[inline(always)]
pub const fn mix(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(23) ^ value).wrapping_mul(MULTIPLIER)
}
