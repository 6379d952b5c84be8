//! Where the function of a point has its frame: the word that a point has of the details.

/// Set where the frame is counted from rbp, not from the stack pointer.
pub const BY_RBP: u64 = 1 << 0;
/// Set where [`Standing::others`] are known.
pub const KNOWS_OTHERS: u64 = 1 << 1;
/// The place of [`Standing::rbp`], of 8 bits.
pub const RBP_SHIFT: u32 = 8;
/// The place of [`Standing::others`], of [`OTHER_BITS`] each.
pub const OTHERS_SHIFT: u32 = 16;
/// See [`OTHERS_SHIFT`].
pub const OTHER_BITS: u32 = 3;
/// The place of [`Standing::slot`], of 32 bits.
pub const SLOT_SHIFT: u32 = 32;

/// Where a function has its frame before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// True if the frame is counted from rbp, not from the stack pointer.
    pub by_rbp: bool,
    /// Bytes from there to the address of the return address.
    pub slot: i32,
    /// Words from the return address down to where the caller's rbp is; 0 where it is in its register.
    pub rbp: u8,
    /// The same of rbx and r12 to r15, less than 8 words each; `None` where that is not known.
    pub others: Option<[u8; 5]>,
}

impl Standing {
    /// As a word; `None` where some of it has no room there.
    pub fn encode(self) -> Option<u64> {
        let mut word = u64::from(self.by_rbp) * BY_RBP;
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
        Some(word | u64::from(self.rbp) << RBP_SHIFT | slot)
    }

    /// Of a word.
    #[inline(always)]
    pub const fn decode(word: u64) -> Self {
        const fn other(word: u64, number: u32) -> u8 {
            let mask = (1 << OTHER_BITS) - 1;
            (word >> (OTHERS_SHIFT + number * OTHER_BITS)) as u8 & mask
        }
        let others = [
            other(word, 0),
            other(word, 1),
            other(word, 2),
            other(word, 3),
            other(word, 4),
        ];
        Self {
            by_rbp: word & BY_RBP != 0,
            slot: (word >> SLOT_SHIFT) as i32,
            rbp: (word >> RBP_SHIFT) as u8,
            others: match word & KNOWS_OTHERS {
                0 => None,
                _ => Some(others),
            },
        }
    }

    /// The address of the return address, where the stack pointer and rbp are these.
    #[inline(always)]
    pub const fn slot_at(self, rsp: u64, rbp: u64) -> u64 {
        let base = if self.by_rbp { rbp } else { rsp };
        base.wrapping_add(self.slot as i64 as u64)
    }
}

const _: () = assert!(OTHERS_SHIFT + 5 * OTHER_BITS <= SLOT_SHIFT);

#[cfg(test)]
mod tests {
    use super::Standing;

    #[test]
    fn what_stands_somewhere_survives_its_word() {
        for slot in [0, 8, -8, 4096, i32::MIN, i32::MAX] {
            for rbp in [0, 1, 255] {
                for others in [None, Some([0; 5]), Some([1, 2, 3, 4, 7])] {
                    for by_rbp in [false, true] {
                        let standing = Standing {
                            by_rbp,
                            slot,
                            rbp,
                            others,
                        };
                        let word = standing.encode().expect("room");
                        assert_eq!(Standing::decode(word), standing);
                    }
                }
            }
        }
        let far = Standing {
            by_rbp: false,
            slot: 8,
            rbp: 1,
            others: Some([0, 0, 8, 0, 0]),
        };
        assert_eq!(far.encode(), None);
    }

    #[test]
    fn the_slot_is_counted_from_either_register() {
        let standing = |by_rbp, slot| Standing {
            by_rbp,
            slot,
            rbp: 0,
            others: None,
        };
        assert_eq!(standing(false, 24).slot_at(1000, 2000), 1024);
        assert_eq!(standing(true, 8).slot_at(1000, 2000), 2008);
        assert_eq!(standing(true, -8).slot_at(1000, 2000), 1992);
    }
}
