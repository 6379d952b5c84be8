//! The location of the frame at a point: the point's word in the table of details.

use crate::arch::registers::OTHERS;

/// Flag: the frame is relative to the frame pointer instead of the stack pointer.
pub const BY_FP: u64 = 1 << 0;
/// Flag: [`Standing::others`] are known.
pub const KNOWS_OTHERS: u64 = 1 << 1;
/// Bit offset of [`Standing::fp`], which has 8 bits.
pub const FP_SHIFT: u32 = 8;
/// Bit offset of [`Standing::others`], which have [`OTHER_BITS`] each.
pub const OTHERS_SHIFT: u32 = 16;
/// Width of an element of [`Standing::others`] in bits.
pub const OTHER_BITS: u32 = 3;
/// Bit offset of [`Standing::slot`], which has 32 bits.
pub const SLOT_SHIFT: u32 = 32;

/// The location of a function's frame before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// True if the frame is relative to the frame pointer instead of the stack pointer.
    pub by_fp: bool,
    /// Bytes from the stack pointer, or with `by_fp` from the frame pointer, to the address of the
    /// return address.
    pub slot: i32,
    /// Words from the return address down to the caller's saved frame pointer; 0 if it is still in
    /// its register.
    pub fp: u8,
    /// Words from the return address down to each other saved callee-saved register, less than 8; 0
    /// if it is still in its register. `None` if unknown.
    pub others: Option<[u8; OTHERS]>,
}

impl Standing {
    /// Encodes the location as a word; `None` if a field does not fit.
    pub fn encode(self) -> Option<u64> {
        let mut word = u64::from(self.by_fp) * BY_FP;
        if let Some(others) = self.others {
            word |= KNOWS_OTHERS;
            for (number, words) in (0..).zip(others) {
                if words >> OTHER_BITS != 0 {
                    return None;
                }
                word |= u64::from(words) << (OTHERS_SHIFT + number * OTHER_BITS);
            }
        }
        let slot = u64::from(self.slot as u32) << SLOT_SHIFT;
        Some(word | u64::from(self.fp) << FP_SHIFT | slot)
    }

    /// Decodes a word made by [`Standing::encode`].
    #[inline(always)]
    pub const fn decode(word: u64) -> Self {
        const fn other(word: u64, number: u32) -> u8 {
            let mask = (1 << OTHER_BITS) - 1;
            (word >> (OTHERS_SHIFT + number * OTHER_BITS)) as u8 & mask
        }
        let mut others = [0; OTHERS];
        let mut number = 0;
        while number < OTHERS {
            others[number] = other(word, number as u32);
            number += 1;
        }
        Self {
            by_fp: word & BY_FP != 0,
            slot: (word >> SLOT_SHIFT) as i32,
            fp: (word >> FP_SHIFT) as u8,
            others: match word & KNOWS_OTHERS {
                0 => None,
                _ => Some(others),
            },
        }
    }

    /// The address of the return address if the stack pointer is `sp` and the frame pointer `fp`.
    #[inline(always)]
    pub const fn slot_at(self, sp: u64, fp: u64) -> u64 {
        let base = if self.by_fp { fp } else { sp };
        base.wrapping_add(self.slot as i64 as u64)
    }
}

const _: () = assert!(OTHERS_SHIFT + OTHERS as u32 * OTHER_BITS <= SLOT_SHIFT);

#[cfg(test)]
mod tests {
    use super::{OTHERS, Standing};

    #[test]
    fn what_stands_somewhere_survives_its_word() {
        for slot in [0, 8, -8, 4096, i32::MIN, i32::MAX] {
            for fp in [0, 1, 255] {
                for others in [None, Some([0; OTHERS]), Some([1, 2, 3, 4, 7])] {
                    for by_fp in [false, true] {
                        let standing = Standing {
                            by_fp,
                            slot,
                            fp,
                            others,
                        };
                        let word = standing.encode().expect("room");
                        assert_eq!(Standing::decode(word), standing);
                    }
                }
            }
        }
        let far = Standing {
            by_fp: false,
            slot: 8,
            fp: 1,
            others: Some([0, 0, 8, 0, 0]),
        };
        assert_eq!(far.encode(), None);
    }

    #[test]
    fn the_slot_is_counted_from_either_register() {
        let standing = |by_fp, slot| Standing {
            by_fp,
            slot,
            fp: 0,
            others: None,
        };
        assert_eq!(standing(false, 24).slot_at(1000, 2000), 1024);
        assert_eq!(standing(true, 8).slot_at(1000, 2000), 2008);
        assert_eq!(standing(true, -8).slot_at(1000, 2000), 1992);
    }
}
