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

/// Scans the text; `empty` is a set over it.
pub fn text(image: &Image<'_>, empty: &AddressSet) -> Found {
    let mut found = Found {
        branches: empty.clone(),
        crowded: empty.clone(),
        leas: empty.clone(),
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Branch,
    Lea,
}

fn each_target(image: &Image<'_>, mut found: impl FnMut(u64, Kind)) {
    for segment in image.segments().iter().filter(|s| s.execute) {
        let Some(code) = file_bytes(image, segment) else {
            continue;
        };
        let start = segment.range.start.0;
        let lands = |at: usize, displacement: [u8; 4]| {
            let next = start.wrapping_add(at as u64);
            next.wrapping_add(i64::from(i32::from_le_bytes(displacement)) as u64)
        };
        for (i, w) in code.windows(6).enumerate() {
            if w[0] & 0xfe == 0xe8 {
                found(lands(i + 5, [w[1], w[2], w[3], w[4]]), Kind::Branch);
            } else if w[0] == 0x0f && w[1] & 0xf0 == 0x80 {
                found(lands(i + 6, [w[2], w[3], w[4], w[5]]), Kind::Branch);
            } else if w[0] == 0x8d && w[1] & 0xc7 == 0x05 {
                found(lands(i + 6, [w[2], w[3], w[4], w[5]]), Kind::Lea);
            }
        }
        // The loop above needs six bytes; a call or jump in the last five is looked at here.
        if let Some([0xe8 | 0xe9, a, b, c, d]) = code.last_chunk::<5>() {
            found(lands(code.len(), [*a, *b, *c, *d]), Kind::Branch);
        }
    }
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
pub fn file_bytes<'d>(image: &Image<'d>, segment: &Segment) -> Option<&'d [u8]> {
    let len = segment
        .file_size
        .min(segment.range.end.0 - segment.range.start.0);
    image.bytes(segment.range.start, len)
}
