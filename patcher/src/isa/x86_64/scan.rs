//! A scan for instructions that reference a code address, at every byte.

/// The kind of reference to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// The address is the target of a `call`, `jmp` or `jcc` with a 32-bit displacement.
    Branch,
    /// The address is one that a rip-relative `lea` computes.
    Formed,
}

/// The number of bytes that are scanned together.
const BLOCK: usize = 64;
/// The number of bytes after a block that its instructions may extend into. It is rounded up so
/// that eight bytes can be read at each place.
const BEHIND: usize = 8;

/// Calls `found` with the target and the kind of each reference in `code`, which begins at address
/// `start`, and with the end of the instruction. References are in ascending order of their own
/// addresses.
pub fn targets_in(code: &[u8], start: u64, found: &mut impl FnMut(u64, TargetKind, u64)) {
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

/// Like [`targets_in`], for the block at offset `first` of `len` bytes of code at address `start`.
fn targets_of(
    block: &[u8; BLOCK + BEHIND],
    start: u64,
    first: usize,
    len: usize,
    found: &mut impl FnMut(u64, TargetKind, u64),
) {
    let mut places = places_in(block);
    while places != 0 {
        let at = places.trailing_zeros() as usize;
        places &= places - 1;
        let [opcode, rest @ ..] = std::array::from_fn::<u8, 6, _>(|i| block[at + i]);
        // Computed without a branch: the processor would rarely predict the kind correctly.
        let is_short = opcode & 0xfe == 0xe8;
        let field = usize::from(!is_short);
        let displacement: [u8; 4] = std::array::from_fn(|i| rest[field + i]);
        let next = first + at + 5 + field;
        if next > len {
            continue;
        }
        let displacement = i64::from(i32::from_le_bytes(displacement)) as u64;
        let end = start.wrapping_add(next as u64);
        let to = end.wrapping_add(displacement);
        let kind = match opcode {
            0x8d => TargetKind::Formed,
            _ => TargetKind::Branch,
        };
        found(to, kind, end);
    }
}

/// A bit mask of the places in a block at which an opcode of interest begins.
///
/// Written to compile to vector instructions. Most bytes are no match, and a branch for each byte
/// takes twice as long.
fn places_in(block: &[u8; BLOCK + BEHIND]) -> u64 {
    /// The multiplier that gathers the lowest bit of each byte in the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut is_place = [0u8; BLOCK];
    for (i, is_place) in is_place.iter_mut().enumerate() {
        let (a, b) = (block[i], block[i + 1]);
        let is_near = a & 0xfe == 0xe8;
        let is_conditional = (a == 0x0f) & (b & 0xf0 == 0x80);
        let is_lea = (a == 0x8d) & (b & 0xc7 == 0x05);
        *is_place = u8::from(is_near | is_conditional | is_lea);
    }
    let bytes = is_place
        .as_chunks()
        .0
        .iter()
        .copied()
        .map(u64::from_le_bytes)
        .enumerate();
    bytes.fold(0, |places, (index, word)| {
        places | word.wrapping_mul(GATHER) >> 56 << (8 * index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// The targets that an independent decoder finds at each byte.
    fn decoded(code: &[u8], start: u64) -> Vec<(u64, TargetKind)> {
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
                found.push((insn.near_branch_target(), TargetKind::Branch));
            } else if insn.is_ip_rel_memory_operand() {
                found.push((insn.ip_rel_memory_address(), TargetKind::Formed));
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
            targets_in(&code, start, &mut |to, kind, _| found.push((to, kind)));
            assert_eq!(found, decoded(&code, start), "{code:x?}");
        }
    }
}
