//! Scans over the whole module for possible branch targets and pointers.
//!
//! Both scans over-approximate. The text is read byte by byte, not instruction by instruction. So
//! data in code, overlapping instructions and wrong function bounds cannot hide a branch.

use std::ops::Range;

use crate::addr::Svma;
use crate::elf::{RelocatedWord, Segment, le64};
use crate::image::Image;
use crate::isa::{TargetKind, targets_in};

use super::address_set::AddressSet;

/// Possible targets of branches and pointers in the text.
pub struct TextTargets {
    /// The targets of calls and jumps with a 32-bit displacement.
    pub branches: AddressSet,
    /// The targets in `branches` that two or more instructions may have.
    pub crowded: AddressSet,
    /// The addresses that instructions compute relative to themselves.
    pub formed: AddressSet,
}

/// Scans the text.
pub fn text(image: &Image<'_>) -> TextTargets {
    // Each set is made new instead of copied, so that unused parts of its memory stay untouched.
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
    each_target(image, |to, kind, _| match kind {
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

/// The targets in `wanted` of all branches with a 32-bit displacement, sorted.
pub fn arrivals(image: &Image<'_>, wanted: &AddressSet) -> Vec<u64> {
    let mut targets = Vec::new();
    each_target(image, |to, kind, _| {
        if kind == TargetKind::Branch && wanted.contains(Svma(to)) {
            targets.push(to);
        }
    });
    targets.sort_unstable();
    targets
}

/// A branch with a 32-bit displacement: its target, and the end of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LongBranch {
    /// The target.
    pub to: Svma,
    /// The address after the instruction.
    pub end: Svma,
}

/// The branches with a 32-bit displacement from one function into the middle of another one, or
/// from code or to code of no function, sorted.
pub fn crossing(image: &Image<'_>) -> Vec<LongBranch> {
    let mut found = Vec::new();
    let functions = image.functions();
    each_target(image, |to, kind, end| {
        let (to, end) = (Svma(to), Svma(end));
        if kind != TargetKind::Branch {
            return;
        }
        let target = functions.containing(to);
        let is_start = target.is_some_and(|target| target.start == to);
        let is_own = || target == functions.containing(Svma(end.0 - 1)) && target.is_some();
        if !is_start && !is_own() {
            found.push(LongBranch { to, end });
        }
    });
    found.sort_unstable();
    found
}

/// The branches with a 32-bit displacement in `range` to one of `wanted`, which ascend.
pub fn branches_within(image: &Image<'_>, range: &Range<Svma>, wanted: &[Svma]) -> Vec<LongBranch> {
    let bytes = image.bytes(range.start, range.end.0.saturating_sub(range.start.0));
    let mut found = Vec::new();
    targets_in(
        bytes.unwrap_or_default(),
        range.start.0,
        &mut |to, kind, end| {
            if kind == TargetKind::Branch && wanted.binary_search(&Svma(to)).is_ok() {
                let (to, end) = (Svma(to), Svma(end));
                found.push(LongBranch { to, end });
            }
        },
    );
    found
}

/// An empty set over the text.
pub fn over_text(image: &Image<'_>) -> AddressSet {
    let text = image.segments().iter().filter(|s| s.execute);
    // Bytes that the file does not contain are not code, whatever the segment's stated length.
    AddressSet::over(text.map(|s| s.range.start..s.file_end()))
}

fn each_target(image: &Image<'_>, mut found: impl FnMut(u64, TargetKind, u64)) {
    for segment in image.segments().iter().filter(|s| s.execute) {
        let code = file_bytes(image, segment).unwrap_or_default();
        targets_in(code, segment.range.start.0, &mut found);
    }
}

/// All 64-bit words in the segments of a module with a fixed address.
///
/// Tables of 64-bit words are aligned to 8. Text can contain tables too, so all segments are
/// scanned. Empty for a module that the loader places: its relocations state the words.
pub fn plain_words(image: &Image<'_>) -> impl Iterator<Item = RelocatedWord> {
    let is_fixed = !image.is_position_independent();
    let segments = image.segments().iter().filter(move |_| is_fixed);
    segments.flat_map(|segment| {
        let bytes = file_bytes(image, segment).unwrap_or_default();
        // The address is aligned, not the offset in the file.
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

/// The bytes of `segment` that the file provides; `None` if it provides none.
fn file_bytes<'d>(image: &Image<'d>, segment: &Segment) -> Option<&'d [u8]> {
    let len = segment
        .file_size
        .min(segment.range.end.0 - segment.range.start.0);
    image.bytes(segment.range.start, len)
}
