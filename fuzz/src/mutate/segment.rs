//! Mutations of words. A segment is a header of words and areas of items of words; an input holds
//! pieces of known sizes.

use super::bytes::{bytes, get, put};
use crate::Random;

/// The size of the header in an input, in bytes.
pub const HEADER: usize = 4096;
/// The size of each area in an input, in bytes.
pub const AREA: usize = 1024;
/// The bytes of the header that have a meaning.
const FIELDS: usize = 0x140;

/// Mutates a field of the header, a word of an area, or any bytes.
pub fn segment(random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let width = [2, 4, 4, 8, 8][random.below(5)];
    let place = match random.below(16) {
        0..=2 => random.below(FIELDS / width) * width,
        3..=13 => {
            let areas = input.len().saturating_sub(HEADER) / AREA;
            HEADER + random.below(areas) * AREA + random.below(AREA / width) * width
        }
        14 => {
            // A file that was truncated while it was written.
            let end = HEADER + random.below(input.len().saturating_sub(HEADER));
            return input.truncate(end);
        }
        _ => return bytes(random, corpus, input),
    };
    let old = get(input, place, width);
    let value = match random.below(8) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => old ^ 1 << random.below(width * 8),
        // Most references are small numbers.
        3 | 4 => random.below(64) as u64,
        // The value of another word.
        5 => get(input, random.below(input.len() / width) * width, width),
        6 => random.word(),
        _ => random.interesting(input.len()),
    };
    put(input, place, width, value);
}
