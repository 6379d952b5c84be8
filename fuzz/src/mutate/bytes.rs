//! Mutations that do not depend on the format of the input.

use crate::Random;

/// The maximum size of an input, in bytes.
const LONGEST: usize = 1 << 20;

/// Flips, overwrites, cuts or duplicates bytes, or copies them from another input.
pub fn bytes(random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    if input.is_empty() {
        input.push(random.word() as u8);
    }
    let len = input.len();
    let at = random.below(len);
    match random.below(8) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.word() as u8,
        2 | 3 => {
            let width = [1, 2, 4, 8][random.below(4)];
            let at = at / width * width;
            put(input, at, width, random.interesting(len));
        }
        4 => {
            let end = at + random.below(len - at).min(64);
            let fill = [0, 0xff, 0x90][random.below(3)];
            input[at..end].fill(fill);
        }
        5 => input.truncate(at.max(1)),
        6 => {
            let end = at + random.below(len - at).min(512);
            let part = input[at..end].to_vec();
            let to = random.below(len);
            if len + part.len() <= LONGEST {
                input.splice(to..to, part);
            }
        }
        _ => {
            let other = random.pick(corpus).map_or(&[][..], Vec::as_slice);
            let from = random.below(other.len());
            let part = &other[from..other.len().min(from + random.below(512))];
            let end = len.min(at + part.len());
            input.splice(at..end, part.iter().copied());
        }
    }
}

/// Writes the lowest `width` bytes of `value` at `at`, as many as fit.
pub(super) fn put(input: &mut [u8], at: usize, width: usize, value: u64) {
    for (place, byte) in input
        .iter_mut()
        .skip(at)
        .zip(value.to_le_bytes())
        .take(width)
    {
        *place = byte;
    }
}

/// The word at `at`. Bytes beyond the end are zero.
pub(super) fn get(input: &[u8], at: usize, width: usize) -> u64 {
    let bytes = input.iter().skip(at).take(width).zip(0u32..);
    bytes.fold(0, |word, (&byte, n)| word | u64::from(byte) << (8 * n))
}
