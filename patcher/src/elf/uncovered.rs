//! Code without unwind entries.

use std::ops::Range;

use super::file::ElfFile;
use crate::addr::Svma;
use crate::isa::{decode, may_have_calls};

/// The prefix of sections that BOLT has left behind. Code that it has moved out is dead there, and
/// all other code has unwind entries.
const LEFT_BY_BOLT: &str = ".bolt.org.";

impl ElfFile<'_> {
    /// Ranges that may contain code, by address: code sections except for linkage tables, or
    /// executable segments if the file has no such sections.
    pub(crate) fn code(&self) -> Vec<Range<Svma>> {
        let sections = self.sections().iter();
        let of_sections = sections.filter(|s| s.holds_code() && !s.is_plt());
        let of_sections = of_sections.filter(|s| !s.name.starts_with(LEFT_BY_BOLT));
        let mut ranges: Vec<_> = of_sections.map(|s| s.range()).collect();
        if self.sections().iter().all(|s| !s.holds_code()) {
            let segments = self.segments().iter().filter(|s| s.execute);
            ranges = segments.map(|s| s.range.start..s.file_end()).collect();
        }
        ranges.sort_by_key(|r| (r.start, r.end));
        // Each byte once, even for a damaged file.
        without(ranges, std::iter::empty())
    }

    /// The code outside of `covered` that contains calls, by address. `covered` is ordered by
    /// start.
    pub(crate) fn calls_outside(
        &self,
        covered: impl Iterator<Item = Range<Svma>>,
    ) -> Vec<Range<Svma>> {
        let mut gaps = without(self.code(), covered);
        gaps.retain(|gap| self.has_calls(gap));
        gaps
    }

    /// True if decoding from the start of the range finds a call.
    fn has_calls(&self, range: &Range<Svma>) -> bool {
        let bytes = self.bytes(range.start, range.end.0 - range.start.0);
        let bytes = bytes.unwrap_or_default();
        may_have_calls(bytes) && decode(bytes, range.start).any(|insn| insn.is_call())
    }
}

/// The rest of `ranges` without `covered`, both ordered by start.
fn without(
    ranges: Vec<Range<Svma>>,
    covered: impl Iterator<Item = Range<Svma>>,
) -> Vec<Range<Svma>> {
    let mut left = Vec::new();
    let mut covered = covered.peekable();
    let mut to = Svma(0);
    for range in ranges {
        let mut at = range.start.max(to);
        while at < range.end {
            let Some(next) = covered.peek().cloned() else {
                break;
            };
            if next.start >= range.end {
                break;
            }
            if at < next.start {
                left.push(at..next.start);
            }
            at = at.max(next.end);
            if next.end > range.end {
                break;
            }
            covered.next();
        }
        if at < range.end {
            left.push(at..range.end);
        }
        to = to.max(range.end).max(at);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &[(u64, u64)]) -> Vec<Range<Svma>> {
        of.iter().map(|&(a, b)| Svma(a)..Svma(b)).collect()
    }

    #[test]
    fn what_is_left_of_ranges() {
        for (all, covered, expected) in [
            (&[(10, 20)][..], &[][..], &[(10, 20)][..]),
            (&[(10, 20)], &[(10, 20)], &[]),
            (
                &[(10, 20)],
                &[(0, 12), (14, 14), (15, 30)],
                &[(12, 14), (14, 15)],
            ),
            (
                &[(10, 20), (30, 40)],
                &[(5, 8), (15, 35)],
                &[(10, 15), (35, 40)],
            ),
            (
                &[(10, 20), (15, 25)],
                &[(12, 13)],
                &[(10, 12), (13, 20), (20, 25)],
            ),
            (&[(10, 20)], &[(12, 18), (13, 14)], &[(10, 12), (18, 20)]),
            (
                &[(10, 20), (22, 30)],
                &[(12, 25), (13, 28)],
                &[(10, 12), (28, 30)],
            ),
        ] {
            let left = without(ranges(all), ranges(covered).into_iter());
            assert_eq!(left, ranges(expected), "{all:?} {covered:?}");
        }
    }
}
