//! Mutations of the fields of an ELF file: gABI, Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr.

use super::bytes::{bytes, get, put};
use crate::Random;

/// A table in the file: offset, size of an entry, number of entries.
type Table = (usize, usize, usize);

/// Fields of an entry: offset and width.
type Fields = &'static [(usize, usize)];

const HEADER: Fields = &[
    (16, 2),
    (24, 8),
    (32, 8),
    (40, 8),
    (54, 2),
    (56, 2),
    (58, 2),
    (60, 2),
    (62, 2),
];
const PROGRAM: Fields = &[(0, 4), (4, 4), (8, 8), (16, 8), (32, 8), (40, 8), (48, 8)];
const SECTION: Fields = &[
    (0, 4),
    (4, 4),
    (8, 8),
    (16, 8),
    (24, 8),
    (32, 8),
    (40, 4),
    (44, 4),
    (56, 8),
];
const SYMBOL: Fields = &[(0, 4), (4, 1), (6, 2), (8, 8), (16, 8)];

/// Mutates a field, the contents of a section, or any bytes.
pub fn elf(random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let number = |at, width| usize::try_from(get(input, at, width)).unwrap_or(usize::MAX);
    let programs = (number(32, 8), 56, number(56, 2));
    let sections = (number(40, 8), 64, number(60, 2));
    match random.below(8) {
        0 => field(random, input, (0, 64, 1), HEADER),
        1 | 2 => field(random, input, programs, PROGRAM),
        3 => field(random, input, sections, SECTION),
        4 => {
            let symbols = contents(random, input, sections);
            field(random, input, (symbols.0, 24, symbols.1 / 24), SYMBOL);
        }
        5 | 6 => {
            let (at, len) = contents(random, input, sections);
            let width = [1, 1, 2, 4, 8][random.below(5)];
            let value = match random.below(2) {
                0 => random.word(),
                _ => random.interesting(input.len()),
            };
            put(input, at.saturating_add(random.below(len)), width, value);
        }
        _ => bytes(random, corpus, input),
    }
}

/// Mutates a field of some entry of a table.
fn field(random: &mut Random, input: &mut [u8], table: Table, fields: Fields) {
    let (start, size, count) = table;
    let entry = random.below(count.min(4096)) * size;
    let Some(&(offset, width)) = random.pick(fields) else {
        return;
    };
    let at = start.saturating_add(entry + offset);
    let value = match random.below(4) {
        // The value of the same field in another entry.
        0 => get(
            input,
            start.saturating_add(random.below(count.min(64)) * size + offset),
            width,
        ),
        1 => get(input, at, width).wrapping_add(random.interesting(16)),
        _ => random.interesting(input.len()),
    };
    put(input, at, width, value);
}

/// The offset and size of some section's contents in the file.
fn contents(random: &mut Random, input: &[u8], sections: Table) -> (usize, usize) {
    let (start, size, count) = sections;
    let header = start.saturating_add(random.below(count.min(4096)) * size);
    let number = |at| usize::try_from(get(input, header.saturating_add(at), 8)).unwrap_or(0);
    (number(24), number(32).min(input.len()))
}
