//! Code that a program has copied to anonymous memory over its file's text, to use huge pages
//! (node's `--use-largepages`, iodlr, BOLT's hugify). The file's segments still describe the
//! contents, and the bytes are compared.

use std::ops::Range;

use abi::PAGE;
use patcher::image::{Image, Segment};
use patcher::{Avma, Bias, FileOffset};

use super::{Mapping, Memory};

/// The most pages compared per mapping.
const PAGES: u64 = 64;
/// The percentage of compared pages that may differ. A session's patches make pages differ.
const MAY_DIFFER: u64 = 25;

/// True for an anonymous mapping, named or not.
fn is_own(mapping: &Mapping) -> bool {
    mapping.file.1 == 0 && (mapping.name.is_empty() || is_named(mapping))
}

/// True for an anonymous mapping with a name (prctl(2), PR_SET_VMA_ANON_NAME).
pub(super) fn is_named(mapping: &Mapping) -> bool {
    mapping.name.starts_with("[anon")
}

/// The executable, readable and private anonymous mappings within `range`, the extent of a module,
/// or adjacent to it.
pub(super) fn candidates(range: &Range<Avma>, maps: &[Mapping]) -> Vec<Mapping> {
    let mut range = range.clone();
    // If the text is first in the file, its copy precedes the file's remaining mappings.
    for mapping in maps.iter().rev() {
        if is_own(mapping) && mapping.range.end == range.start {
            range.start = mapping.range.start;
        }
    }
    for mapping in maps {
        if is_own(mapping) && mapping.range.start == range.end {
            range.end = mapping.range.end;
        }
    }
    let is_between = |m: &&Mapping| range.start <= m.range.start && m.range.end <= range.end;
    let found = maps.iter().filter(|m| m.execute && m.read && !m.shared);
    let found = found.filter(|m| is_own(m)).filter(is_between);
    found.cloned().collect()
}

/// A file that is mapped at a bias.
pub(super) struct Mapped<'f> {
    pub(super) image: &'f Image<'f>,
    /// The bias at which the file's segments are mapped.
    pub(super) bias: Bias,
    /// A mapping of the file.
    pub(super) own: &'f Mapping,
}

impl Mapped<'_> {
    /// The parts of the candidates that hold a copy of the file's code, described as mappings of
    /// the file.
    pub(super) fn copies(&self, candidates: &[Mapping], memory: &Memory) -> Vec<Mapping> {
        let segments = || self.image.segments().iter().filter(|s| s.execute);
        let pieces = candidates
            .iter()
            .flat_map(|m| segments().map(move |s| (m, s)));
        let pieces = pieces.filter_map(|(mapping, segment)| self.piece(mapping, segment));
        pieces.filter(|p| self.is_copy(p, memory)).collect()
    }

    /// The part of a mapping at the address of a segment of the file, described as a mapping of the
    /// file. `None` if they do not overlap.
    fn piece(&self, mapping: &Mapping, segment: &Segment) -> Option<Mapping> {
        let page = |at: u64| at & !(PAGE - 1);
        let begin = self.bias.to_avma(segment.range.start);
        let first = Avma(page(begin.0));
        let end = Avma(begin.plus(segment.file_size).0.next_multiple_of(PAGE));
        let (start, end) = (mapping.range.start.max(first), mapping.range.end.min(end));
        (start < end).then(|| Mapping {
            range: start..end,
            offset: FileOffset(page(segment.offset.0) + (start.0 - first.0)),
            file: self.own.file.clone(),
            name: self.own.name.clone(),
            ..mapping.clone()
        })
    }

    /// True if the memory equals the file's contents, apart from patches.
    fn is_copy(&self, piece: &Mapping, memory: &Memory) -> bool {
        let pages = (piece.range.end.0 - piece.range.start.0) / PAGE;
        let step = pages.div_ceil(PAGES).max(1);
        let (mut compared, mut different) = (0, 0);
        for page in (0..pages).step_by(step as usize) {
            let from = (piece.offset.0 + page * PAGE) as usize;
            let expected = self.image.data().get(from..).unwrap_or_default();
            let expected = &expected[..expected.len().min(PAGE as usize)];
            let at = piece.range.start.plus(page * PAGE);
            compared += 1;
            let there = memory.read_vec(at, expected.len());
            different += u64::from(!there.is_ok_and(|there| agrees(&there, expected)));
        }
        different * 100 <= compared * MAY_DIFFER
    }
}

/// True if most bytes of a page equal the file's. Patches change a few bytes, while other code
/// differs in nearly all.
fn agrees(there: &[u8], expected: &[u8]) -> bool {
    let same = there.iter().zip(expected).filter(|(a, b)| a == b).count();
    same * 4 >= expected.len() * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps::parse;

    #[test]
    fn memory_of_no_file_is_looked_at_where_a_text_may_have_been() {
        let maps = parse(
            "\
400000-401000 rwxp 00000000 00:00 0
401000-402000 r--p 00001000 fe:00 12 /opt/app
402000-404000 r-xp 00000000 00:00 0 [anon:text]
404000-405000 rw-p 00004000 fe:00 12 /opt/app
405000-406000 rw-p 00000000 00:00 0
406000-407000 r-xp 00000000 00:00 0
500000-501000 r-xp 00000000 00:00 0
",
        );
        let found = candidates(&(Avma(0x40_1000)..Avma(0x40_5000)), &maps);
        let starts: Vec<u64> = found.iter().map(|m| m.range.start.0).collect();
        assert_eq!(starts, [0x40_0000, 0x40_2000, 0x40_6000]);
    }

    #[test]
    fn patches_do_not_make_another_page() {
        let page = vec![7; 4096];
        let mut patched = page.clone();
        patched[100..200].fill(1);
        assert!(agrees(&patched, &page));
        assert!(!agrees(&[1; 4096], &page));
        assert!(!agrees(&page[..100], &page));
    }
}
