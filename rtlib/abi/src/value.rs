//! The locations of arguments and return values.
//!
//! Each function has a word of locations, one byte per value: the registers of its arguments (psABI
//! 3.2.3) and of its return value, with the type of each. The highest byte tells which of them are
//! known.

/// The number of the return value. Argument `n` of a function has the number `n - 1`.
pub const RETURN: u8 = 6;
/// The number of values per function.
pub const VALUES: usize = 7;

/// The bit of a function's word that says that the location of value `number` is known.
pub const fn is_known(number: u8) -> u64 {
    1 << (8 * VALUES + number as usize)
}

/// The sum of up to 2^31 values. `sum` is the lower 64 bits of it, `upper` the sum of the upper 32
/// bits of each value. Either may include one value more than the other, if it was read during an
/// update.
pub const fn whole_sum(sum: u64, upper: u64) -> u128 {
    let whole = (upper as u128) << 32;
    // The sum of the lower halves, which is less than 2^63.
    let lower = sum.wrapping_sub(whole as u64) as i64;
    whole.saturating_add_signed(lower as i128)
}

/// The location and the type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueLocation {
    /// The index among the registers for arguments or results of this class, in the order of the
    /// psABI.
    pub register: u8,
    /// True if the register is a vector register; false for an integer register.
    pub is_vector: bool,
    /// The binary logarithm of the value's bytes, 0 to 3.
    pub width: u8,
    /// True if an integer is signed; always true for a vector register.
    pub is_signed: bool,
}

impl ValueLocation {
    /// The bits of [`ValueLocation::encode`] for the register. Without other bits, the value is a
    /// whole integer register.
    pub const REGISTER: u8 = 7;
    /// The bits of [`ValueLocation::encode`] other than the register, for the lower half of an
    /// integer register.
    pub const HALF: u8 = 1 << 4;
    /// The bits of [`ValueLocation::encode`] other than the register, for the lower half of an
    /// integer register with a signed value.
    pub const SIGNED_HALF: u8 = Self::HALF | 1 << 6;

    /// Encodes the location as a byte: the register, the class from bit 3 on, the number of times
    /// that the width is halved, and the signedness, which is irrelevant for a whole integer
    /// register.
    pub const fn encode(self) -> u8 {
        let narrower = 3 - (self.width & 3);
        let tells_sign = self.is_vector || narrower != 0;
        self.register & Self::REGISTER
            | (self.is_vector as u8) << 3
            | narrower << 4
            | ((self.is_signed && tells_sign) as u8) << 6
    }

    /// Decodes a byte made by [`ValueLocation::encode`].
    pub const fn decode(byte: u8) -> Self {
        Self {
            register: byte & 7,
            is_vector: byte & 8 != 0,
            width: 3 - (byte >> 4 & 3),
            is_signed: byte & 0x40 != 0 || byte & 0x38 == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_told_beyond_64_bits() {
        for values in [
            &[0, 0][..],
            &[1, u64::MAX >> 1, 1 << 63],
            &[0x7fff_f7dd_1000; 300_000],
            &[1 << 63; 100_000],
            &[u64::MAX >> 33; 100_000],
        ] {
            let (mut sum, mut upper, mut whole) = (0_u64, 0_u64, 0_u128);
            for &value in values {
                // A reader between the two updates sees the value in only one of them.
                for (sum, upper) in [
                    (sum.wrapping_add(value), upper),
                    (sum, upper + (value >> 32)),
                ] {
                    let read = whole_sum(sum, upper);
                    assert!(
                        read.abs_diff(whole) <= 1 << 63,
                        "{value}: {read} for {whole}"
                    );
                }
                sum = sum.wrapping_add(value);
                upper += value >> 32;
                whole += u128::from(value);
                assert_eq!(whole_sum(sum, upper), whole);
            }
        }
    }
}
