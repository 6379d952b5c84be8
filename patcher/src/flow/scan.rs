//! Scans over the whole module: where anything in it may branch or point to.
//!
//! Both scans over-approximate. The text is read byte by byte, not instruction by instruction, so
//! data in code, overlapping instructions and wrong function bounds cannot hide a branch.

use crate::addr::Svma;
use crate::elf::{RelocatedWord, Segment, le64};
use crate::image::Image;

use super::address_set::AddressSet;

/// What the text may branch and point to.
pub struct Found {
    /// The targets of `call`, `jmp` and `jcc` with a 32-bit displacement.
    pub branches: AddressSet,
    /// Those of them that more than one may have.
    pub crowded: AddressSet,
    /// The addresses that a rip-relative `lea` forms.
    pub leas: AddressSet,
}

/// Scans the text.
pub fn text(image: &Image<'_>) -> Found {
    // A set is made anew and not copied: its memory is touched only where something is put into it.
    let mut found = Found {
        branches: over_text(image),
        crowded: over_text(image),
        leas: over_text(image),
    };
    let Found {
        branches,
        crowded,
        leas,
    } = &mut found;
    each_target(image, |to, kind| match kind {
        Kind::Branch if !branches.insert(to) => {
            crowded.insert(to);
        }
        Kind::Branch => {}
        Kind::Lea => {
            leas.insert(to);
        }
    });
    found
}

/// The targets of all branches with a 32-bit displacement to addresses in `wanted`, sorted.
pub fn arrivals(image: &Image<'_>, wanted: &AddressSet) -> Vec<u64> {
    let mut targets = Vec::new();
    each_target(image, |to, kind| {
        if kind == Kind::Branch && wanted.contains(Svma(to)) {
            targets.push(to);
        }
    });
    targets.sort_unstable();
    targets
}

/// An empty set over the text.
pub fn over_text(image: &Image<'_>) -> AddressSet {
    let text = image.segments().iter().filter(|s| s.execute);
    // What the file has no bytes for is no code, however long it is stated to be.
    AddressSet::over(text.map(|s| s.range.start..s.file_end()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Branch,
    Lea,
}

/// Bytes of code that are looked at together.
const BLOCK: usize = 64;
/// Bytes after a block that an instruction in it may reach into, rounded up so that eight can be read from each place.
const BEHIND: usize = 8;

fn each_target(image: &Image<'_>, mut found: impl FnMut(u64, Kind)) {
    for segment in image.segments().iter().filter(|s| s.execute) {
        let code = file_bytes(image, segment).unwrap_or_default();
        targets_in(code, segment.range.start.0, &mut found);
    }
}

/// The targets in code that begins at `start`.
fn targets_in(code: &[u8], start: u64, found: &mut impl FnMut(u64, Kind)) {
    for first in (0..code.len()).step_by(BLOCK) {
        let rest = &code[first..];
        match rest.first_chunk() {
            Some(block) => targets_of(block, start, first, code.len(), found),
            None => {
                let mut block = [0; BLOCK + BEHIND];
                block[..rest.len()].copy_from_slice(rest);
                targets_of(&block, start, first, code.len(), found);
            }
        }
    }
}

/// The targets in the block at offset `first` of `len` bytes of code.
fn targets_of(
    block: &[u8; BLOCK + BEHIND],
    start: u64,
    first: usize,
    len: usize,
    found: &mut impl FnMut(u64, Kind),
) {
    let mut places = places_in(block);
    while places != 0 {
        let at = places.trailing_zeros() as usize;
        places &= places - 1;
        let [opcode, rest @ ..] = std::array::from_fn::<u8, 6, _>(|i| block[at + i]);
        // A processor would seldom guess right which of the kinds it is.
        let is_short = opcode & 0xfe == 0xe8;
        let field = usize::from(!is_short);
        let displacement: [u8; 4] = std::array::from_fn(|i| rest[field + i]);
        let next = first + at + 5 + field;
        if next > len {
            continue;
        }
        let displacement = i64::from(i32::from_le_bytes(displacement)) as u64;
        let to = start.wrapping_add(next as u64).wrapping_add(displacement);
        let kind = match opcode {
            0x8d => Kind::Lea,
            _ => Kind::Branch,
        };
        found(to, kind);
    }
}

/// The places of a block where an opcode of interest stands, one bit each. Written so that it is compiled to vector
/// instructions: most bytes are none, and a branch for each byte takes twice as long.
fn places_in(block: &[u8; BLOCK + BEHIND]) -> u64 {
    /// Brings the lowest bit of each byte into the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut is_place = [0u8; BLOCK];
    for (i, is_place) in is_place.iter_mut().enumerate() {
        let (a, b) = (block[i], block[i + 1]);
        let is_near = a & 0xfe == 0xe8;
        let is_conditional = (a == 0x0f) & (b & 0xf0 == 0x80);
        let is_lea = (a == 0x8d) & (b & 0xc7 == 0x05);
        *is_place = u8::from(is_near | is_conditional | is_lea);
    }
    let bytes = is_place.chunks_exact(8).map(le64).enumerate();
    bytes.fold(0, |places, (index, word)| {
        places | word.wrapping_mul(GATHER) >> 56 << (8 * index)
    })
}

/// The words that a module with a fixed address has as they are: tables of 64-bit words are aligned to 8. Text
/// can hold tables, too, so no segment is left out. None in a module that the loader gives its address: there
/// the relocations tell them.
pub fn plain_words(image: &Image<'_>) -> impl Iterator<Item = RelocatedWord> {
    let is_fixed = !image.is_position_independent();
    let segments = image.segments().iter().filter(move |_| is_fixed);
    segments.flat_map(|segment| {
        let bytes = file_bytes(image, segment).unwrap_or_default();
        // Aligned is the address, not the offset in the file.
        let skew = segment.range.start.0.wrapping_neg() & 7;
        let words = bytes
            .get(skew as usize..)
            .unwrap_or_default()
            .chunks_exact(8);
        let start = segment.range.start.plus(skew);
        words.zip(0..).map(move |(word, index)| RelocatedWord {
            at: start.plus(8 * index),
            value: le64(word),
        })
    })
}

/// The bytes of `segment` that the file provides.
fn file_bytes<'d>(image: &Image<'d>, segment: &Segment) -> Option<&'d [u8]> {
    let len = segment
        .file_size
        .min(segment.range.end.0 - segment.range.start.0);
    image.bytes(segment.range.start, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// What another decoder finds at each byte.
    fn decoded(code: &[u8], start: u64) -> Vec<(u64, Kind)> {
        let mut found = Vec::new();
        for at in 0..code.len() {
            let is_wanted = match code[at..] {
                [0xe8 | 0xe9, ..] => true,
                [0x0f, second, ..] => second & 0xf0 == 0x80,
                [0x8d, ..] => true,
                _ => false,
            };
            let ip = start + at as u64;
            let insn = Decoder::with_ip(64, &code[at..], ip, DecoderOptions::NONE).decode();
            if !is_wanted || insn.is_invalid() {
                continue;
            }
            if insn.near_branch_target() != 0 {
                found.push((insn.near_branch_target(), Kind::Branch));
            } else if insn.is_ip_rel_memory_operand() {
                found.push((insn.ip_rel_memory_address(), Kind::Lea));
            }
        }
        found
    }

    #[test]
    fn every_target_is_found_at_whatever_place_it_stands() {
        const BYTES: [u8; 8] = [0xe8, 0xe9, 0x0f, 0x8d, 0x84, 0x05, 0x48, 0x00];
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize
        };
        let start = 0x4000_0000;
        for len in (0..3 * BLOCK).chain([4095, 4096, 4097]) {
            let code: Vec<u8> = (0..len).map(|_| BYTES[next() % BYTES.len()]).collect();
            let mut found = Vec::new();
            targets_in(&code, start, &mut |to, kind| found.push((to, kind)));
            assert_eq!(found, decoded(&code, start), "{code:x?}");
        }
    }
}
