//! Scans over the whole module: where anything in it may branch or point to.
//!
//! Both scans over-approximate. The text is read byte by byte, not instruction by instruction, so
//! data in code, overlapping instructions and wrong function bounds cannot hide a branch.

use crate::addr::Svma;
use crate::elf::{RelocatedWord, Segment, le64};
use crate::image::Image;
use crate::isa::{TargetKind, targets_in};

use super::address_set::AddressSet;

/// What the text may branch and point to.
pub struct TextTargets {
    /// The targets of calls and jumps with a long displacement.
    pub branches: AddressSet,
    /// Those of them that more than one may have.
    pub crowded: AddressSet,
    /// The addresses that instructions form relative to themselves.
    pub formed: AddressSet,
}

/// Scans the text.
pub fn text(image: &Image<'_>) -> TextTargets {
    // A set is made anew and not copied: its memory is touched only where something is put into it.
    let mut found = TextTargets {
        branches: over_text(image),
        crowded: over_text(image),
        formed: over_text(image),
    };
    let TextTargets {
        branches,
        crowded,
        formed,
    } = &mut found;
    each_target(image, |to, kind| match kind {
        TargetKind::Branch if !branches.insert(to) => {
            crowded.insert(to);
        }
        TargetKind::Branch => {}
        TargetKind::Formed => {
            formed.insert(to);
        }
    });
    found
}

/// The targets of all branches with a long displacement to addresses in `wanted`, sorted.
pub fn arrivals(image: &Image<'_>, wanted: &AddressSet) -> Vec<u64> {
    let mut targets = Vec::new();
    each_target(image, |to, kind| {
        if kind == TargetKind::Branch && wanted.contains(Svma(to)) {
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

fn each_target(image: &Image<'_>, mut found: impl FnMut(u64, TargetKind)) {
    for segment in image.segments().iter().filter(|s| s.execute) {
        let code = file_bytes(image, segment).unwrap_or_default();
        targets_in(code, segment.range.start.0, &mut found);
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
fn file_bytes<'d>(image: &Image<'d>, segment: &Segment) -> Option<&'d [u8]> {
    let len = segment
        .file_size
        .min(segment.range.end.0 - segment.range.start.0);
    image.bytes(segment.range.start, len)
}
