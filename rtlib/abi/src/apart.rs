//! What keeps calls of one path apart: phases of the program, values of calls, and long times.
//!
//! A path in the tree is followed by its parts, innermost: the sites of [`Part::encode`]. They are
//! no call sites. From the innermost one outwards, a path has the long time, then the value, then
//! the phase.

use crate::site::{APART_SITE, is_apart};

/// A part of a path inside its call sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A number of [`NUMBER_BITS`], sign-extended.
    Number(i64),
    /// The lower half of a larger number. The next part outwards is its upper half.
    Lower(u32),
    /// The upper half of a number.
    Upper(u32),
    /// The first bytes of a text, or further ones. The next part outwards has the following bytes.
    Text([u8; TEXT_BYTES]),
    /// The last bytes of a text, padded with zeroes.
    TextEnd([u8; TEXT_BYTES]),
    /// The last bytes of a text that is longer.
    TextCut([u8; TEXT_BYTES]),
    /// All values for which there is no room.
    Others,
    /// A value that could not be read.
    Unread,
    /// A phase, by its index.
    Phase(u32),
    /// The call took at least as long as the limit of its schema.
    Long,
}

/// Bits of a [`Part::Number`].
pub const NUMBER_BITS: u32 = 48;
/// Bytes of a text per part.
pub const TEXT_BYTES: usize = 6;
/// The maximum number of bytes of a text. Further ones are not read.
pub const TEXT_LEN: usize = 8 * TEXT_BYTES;
/// The maximum number of parts of a path.
pub const PARTS: usize = TEXT_LEN / TEXT_BYTES + 2;

/// Bit at which the kind of a part begins, above its contents.
const KIND: u32 = 56;

impl Part {
    /// Encodes the part as a site of the tree.
    pub const fn encode(self) -> u64 {
        let (kind, contents) = match self {
            Self::Number(number) => (0, number as u64 & ((1 << NUMBER_BITS) - 1)),
            Self::Lower(half) => (1, half as u64),
            Self::Upper(half) => (2, half as u64),
            Self::Text(bytes) => (3, text(bytes)),
            Self::TextEnd(bytes) => (4, text(bytes)),
            Self::TextCut(bytes) => (5, text(bytes)),
            Self::Others => (6, 0),
            Self::Unread => (7, 0),
            Self::Phase(index) => (8, index as u64),
            Self::Long => (9, 0),
        };
        APART_SITE | kind << KIND | contents
    }

    /// Decodes a site; `None` if it is a call site or the number of a path.
    pub const fn decode(site: u64) -> Option<Self> {
        if !is_apart(site) {
            return None;
        }
        let contents = site & ((1 << NUMBER_BITS) - 1);
        Some(match site >> KIND & 0x1f {
            0 => {
                let unused = u64::BITS - NUMBER_BITS;
                Self::Number((contents << unused) as i64 >> unused)
            }
            1 => Self::Lower(contents as u32),
            2 => Self::Upper(contents as u32),
            3 => Self::Text(bytes(contents)),
            4 => Self::TextEnd(bytes(contents)),
            5 => Self::TextCut(bytes(contents)),
            6 => Self::Others,
            7 => Self::Unread,
            8 => Self::Phase(contents as u32),
            9 => Self::Long,
            _ => return None,
        })
    }

    /// The parts of a number, the innermost first. The second one may not be needed.
    pub const fn of_number(number: i64) -> (Self, Option<Self>) {
        let unused = u64::BITS - NUMBER_BITS;
        if number << unused >> unused == number {
            return (Self::Number(number), None);
        }
        let whole = number as u64;
        let upper = Self::Upper((whole >> u32::BITS) as u32);
        (Self::Lower(whole as u32), Some(upper))
    }
}

const fn text(bytes: [u8; TEXT_BYTES]) -> u64 {
    let [a, b, c, d, e, f] = bytes;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

const fn bytes(contents: u64) -> [u8; TEXT_BYTES] {
    let [a, b, c, d, e, f, _, _] = contents.to_le_bytes();
    [a, b, c, d, e, f]
}

/// The value by which calls of one path are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An argument, by its number counted from 0.
    Argument(u8),
    /// The text that an argument points to, up to its zero byte.
    Text(u8),
    /// The integer at a distance from the address in an argument.
    Field {
        /// The argument, counted from 0.
        argument: u8,
        /// The binary logarithm of the integer's bytes, 0 to 3.
        width: u8,
        /// True if the integer is signed.
        is_signed: bool,
        /// The distance in bytes.
        offset: i32,
    },
    /// The return value.
    Return,
}

impl By {
    /// Encodes the value's definition as a word that is not 0.
    pub const fn encode(self) -> u64 {
        let (kind, argument, place, offset) = match self {
            Self::Argument(argument) => (1, argument, 0, 0),
            Self::Text(argument) => (2, argument, 0, 0),
            Self::Field {
                argument,
                width,
                is_signed,
                offset,
            } => (3, argument, width & 3 | (is_signed as u8) << 2, offset),
            Self::Return => (4, 0, 0, 0),
        };
        kind | (argument as u64) << 8 | (place as u64) << 16 | (offset as u32 as u64) << 32
    }

    /// Decodes a word; `None` if it is not an encoding.
    pub const fn decode(word: u64) -> Option<Self> {
        let (argument, place) = ((word >> 8) as u8, (word >> 16) as u8);
        match word & 0xff {
            1 => Some(Self::Argument(argument)),
            2 => Some(Self::Text(argument)),
            3 => Some(Self::Field {
                argument,
                width: place & 3,
                is_signed: place & 4 != 0,
                offset: (word >> 32) as i32,
            }),
            4 => Some(Self::Return),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::{
        NODE_IS_PATH, call_site, caller_of_site, caller_site, number_of_path, path_site,
    };

    #[test]
    fn parts_are_decoded_as_encoded() {
        let most = (1 << (NUMBER_BITS - 1)) - 1;
        for part in [
            Part::Number(0),
            Part::Number(-1),
            Part::Number(most),
            Part::Number(-most - 1),
            Part::Lower(u32::MAX),
            Part::Upper(7),
            Part::Text(*b"abcdef"),
            Part::TextEnd(*b"ab\0\0\0\0"),
            Part::TextCut([0xff; TEXT_BYTES]),
            Part::Others,
            Part::Unread,
            Part::Phase(u32::MAX),
            Part::Long,
        ] {
            let site = part.encode();
            assert_eq!(Part::decode(site), Some(part));
            assert_eq!(number_of_path(site), None);
            assert_eq!(caller_of_site(site), None);
            assert_eq!(site & NODE_IS_PATH, 0);
        }
        assert_eq!(Part::decode(call_site(0x7fff_ffff_f000, 9)), None);
        assert_eq!(Part::decode(path_site(3)), None);
        for site in [
            call_site(0x7fff_ffff_f000, 9),
            path_site(3),
            NODE_IS_PATH | 3,
        ] {
            assert_eq!(caller_of_site(site), None);
        }
        let caller = caller_site(u32::MAX);
        assert_eq!(caller_of_site(caller), Some(u32::MAX));
        assert_eq!(Part::decode(caller), None);
        assert_eq!(number_of_path(caller), None);
    }

    #[test]
    fn numbers_of_64_bits_have_two_parts() {
        for number in [i64::MIN, i64::MAX, 1 << 47, -(1 << 47) - 1, 1 << 62] {
            let (Part::Lower(low), Some(Part::Upper(high))) = Part::of_number(number) else {
                panic!("{number}");
            };
            assert_eq!((u64::from(high) << 32 | u64::from(low)) as i64, number);
        }
        for number in [0, -1, 42, (1 << 47) - 1, -(1 << 47)] {
            assert_eq!(Part::of_number(number), (Part::Number(number), None));
        }
    }

    #[test]
    fn definitions_are_decoded_as_encoded() {
        let field = |offset, is_signed| By::Field {
            argument: 3,
            width: 2,
            is_signed,
            offset,
        };
        for by in [
            By::Argument(5),
            By::Text(0),
            field(-8, true),
            field(1 << 20, false),
            By::Return,
        ] {
            assert_ne!(by.encode(), 0);
            assert_eq!(By::decode(by.encode()), Some(by));
        }
        assert_eq!(By::decode(0), None);
    }
}
