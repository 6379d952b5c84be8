//! Arguments and return values, read from where the stub has stored them.

use abi::value::{RETURN, ValueLocation};

use crate::arch::stored::{ARGUMENTS, RESULT};
use crate::arch::vector;

/// The value of `vectors` if vector registers are still unchanged since the probe point.
pub const REGISTERS: u64 = 0;

/// Value `number` of a call: [`RETURN`], or the number of an argument counted from 0. `details` is
/// the function's word of locations ([`abi::value`]). A floating-point number is rounded to the
/// nearest integer.
///
/// # Safety
/// `slot` is the address of the return address of a call whose probe is being processed, on the
/// calling thread's stack. `vectors` is the address of the stored vector registers, 16 bytes each,
/// or [`REGISTERS`].
#[inline(always)]
pub unsafe fn read(number: u8, details: u64, slot: u64, vectors: u64) -> i64 {
    let place = ValueLocation::decode((details >> (8 * u32::from(number))) as u8);
    let register = usize::from(place.register);
    if place.is_vector {
        let bits = match vectors {
            REGISTERS => vector::low_half(register),
            // SAFETY: guaranteed by the caller.
            base => unsafe { *((base + 16 * register as u64) as *const u64) },
        };
        return rounded(bits, place.width);
    }
    let at = match number {
        RETURN => RESULT,
        _ => ARGUMENTS[register % ARGUMENTS.len()],
    };
    // SAFETY: guaranteed by the caller.
    let word = unsafe { *((slot - at) as *const u64) };
    narrow(word, place)
}

/// The value in the lower bytes of the integer register `word`. `place` gives their number and the
/// signedness.
#[inline(always)]
fn narrow(word: u64, place: ValueLocation) -> i64 {
    let unused = 64 - (8 << place.width);
    if place.is_signed {
        (word << unused) as i64 >> unused
    } else {
        (word << unused >> unused) as i64
    }
}

/// The integer nearest to a float (`width` 2) or double, with halves rounded away from zero.
/// Out-of-range numbers become the largest or smallest integer, and NaN becomes 0. It uses integer
/// instructions only, because vector registers belong to the program.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn rounded(bits: u64, width: u8) -> i64 {
    const SINGLE: u8 = 2;
    let (exponent_bits, mantissa_bits) = match width {
        SINGLE => (8, 23),
        _ => (11, 52),
    };
    let all = (1u64 << exponent_bits) - 1;
    let exponent = bits >> mantissa_bits & all;
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let is_negative = bits >> (mantissa_bits + exponent_bits) & 1 != 0;
    if exponent == all && mantissa != 0 {
        return 0;
    }
    // The number is (1 or 0).mantissa times two to the power of `power`.
    let power = exponent as i64 - (all / 2) as i64;
    let whole = match power {
        ..-1 => 0,
        63.. => return if is_negative { i64::MIN } else { i64::MAX },
        power => {
            let all_bits = mantissa | 1 << mantissa_bits;
            let below = mantissa_bits - power;
            match below {
                1.. => (all_bits >> (below - 1)).div_ceil(2),
                _ => all_bits << -below,
            }
        }
    } as i64;
    if is_negative { -whole } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded_as_the_compiler_does() {
        let doubles = [
            0.0,
            0.49,
            0.5,
            0.51,
            1.0,
            1.5,
            2.5,
            -2.5,
            -0.3,
            4095.5,
            1e15 + 0.5,
            4503599627370497.5,
            9007199254740993.0,
            1e18,
            -1e18,
            9.3e18,
            -9.3e18,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MIN_POSITIVE,
            5e-324,
        ];
        for number in doubles {
            assert_eq!(
                rounded(number.to_bits(), 3),
                number.round() as i64,
                "{number}"
            );
            let single = number as f32;
            assert_eq!(
                rounded(single.to_bits().into(), 2),
                single.round() as i64,
                "{single}"
            );
        }
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            // An exponent for numbers with integer and fractional parts.
            let exponent = 1023 - 2 + bits % 68;
            let double = f64::from_bits(bits & 0x800f_ffff_ffff_ffff | exponent << 52);
            assert_eq!(
                rounded(double.to_bits(), 3),
                double.round() as i64,
                "{double}"
            );
        }
    }

    #[test]
    fn registers_are_narrowed_as_their_type_says() {
        let place = |width, is_signed| ValueLocation {
            register: 0,
            is_vector: false,
            width,
            is_signed,
        };
        let word = 0x8123_4567_89ab_cdef;
        assert_eq!(narrow(word, place(0, true)), 0xefu8 as i8 as i64);
        assert_eq!(narrow(word, place(0, false)), 0xef);
        assert_eq!(narrow(word, place(1, true)), 0xcdefu16 as i16 as i64);
        assert_eq!(narrow(word, place(2, true)), 0x89ab_cdefu32 as i32 as i64);
        assert_eq!(narrow(word, place(2, false)), 0x89ab_cdef);
        assert_eq!(narrow(word, place(3, true)), word as i64);
    }
}
