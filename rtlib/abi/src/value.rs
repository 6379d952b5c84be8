//! Arguments and return values: where a function has them.
//!
//! A function's are a word, a byte for each: the registers of its arguments (psABI 3.2.3), and what a register has of the
//! value.

/// The number of the return value; those of arguments are one less than their names.
pub const RETURN: u8 = 6;
/// How many values a function can have.
pub const VALUES: usize = 7;

/// The sum of up to 2^31 values, of which `sum` has the lower 64 bits; `upper` is the sum of what each has above its lower
/// 32 bits. One of the two may have had a value more when it was read.
pub const fn whole_sum(sum: u64, upper: u64) -> u128 {
    let whole = (upper as u128) << 32;
    // The sum of the lower halves, which is less than 2^63.
    let lower = sum.wrapping_sub(whole as u64) as i64;
    whole.saturating_add_signed(lower as i128)
}

/// Where one is, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place among the registers for arguments or results of this class, in the order of the psABI.
    pub register: u8,
    /// The class of the register.
    pub is_vector: bool,
    /// The logarithm of its bytes, 0 to 3.
    pub width: u8,
    /// Whether an integer is signed; of a vector register, always.
    pub is_signed: bool,
}

impl Place {
    /// The bits of [`Place::encode`] that tell the register. One with no others is of a whole register of integers.
    pub const REGISTER: u8 = 7;
    /// The other bits where it is the lower half of one.
    pub const HALF: u8 = 1 << 4;
    /// The same, signed.
    pub const SIGNED_HALF: u8 = Self::HALF | 1 << 6;

    /// As a byte: the register, from bit 3 on the class, how often the width has been halved, and whether it is signed, which
    /// makes no difference for a whole register of integers.
    pub const fn encode(self) -> u8 {
        let narrower = 3 - (self.width & 3);
        let tells_sign = self.is_vector || narrower != 0;
        self.register & Self::REGISTER
            | (self.is_vector as u8) << 3
            | narrower << 4
            | ((self.is_signed && tells_sign) as u8) << 6
    }

    /// Of a byte.
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
                // Whoever reads between the two has one of them with the value.
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
