//! Hashing of addresses.

/// The multiplier of keys. The highest bits of the product are the hash. The stubs use it, too.
pub use abi::path::MULTIPLIER;

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
