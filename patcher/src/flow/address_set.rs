//! A set of code addresses, one bit for each byte of the executable segments.

use std::ops::Range;

use crate::addr::Svma;

/// A set of bytes in the executable segments.
///
/// The bitmap has an eighth of the text's size. Insertions and queries need no sorting, so a scan
/// of a 100 MB module is affordable.
#[derive(Clone, Debug, Default)]
pub struct AddressSet {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    range: Range<u64>,
    /// One bit for each byte of `range`, the lowest first; 1 for a member.
    words: Vec<u64>,
}

impl AddressSet {
    /// An empty set over `ranges`. Addresses outside of them are never members.
    pub fn over(ranges: impl Iterator<Item = Range<Svma>>) -> Self {
        let parts = ranges
            .filter(|r| r.start < r.end)
            .map(|r| {
                let len = r.end.0 - r.start.0;
                Part {
                    range: r.start.0..r.end.0,
                    words: vec![0; len.div_ceil(64) as usize],
                }
            })
            .collect();
        Self { parts }
    }

    /// Adds `at` if it is in one of the ranges. Returns false if it was a member before, otherwise
    /// true, even if it is in no range.
    pub fn insert(&mut self, at: u64) -> bool {
        for part in &mut self.parts {
            let offset = at.wrapping_sub(part.range.start);
            if offset < part.range.end - part.range.start {
                let word = &mut part.words[(offset / 64) as usize];
                let before = *word;
                *word |= 1 << (offset % 64);
                return *word != before;
            }
        }
        true
    }

    /// True if `at` is in one of the ranges, and so may be a member.
    pub fn covers(&self, at: Svma) -> bool {
        self.parts.iter().any(|part| part.range.contains(&at.0))
    }

    /// True if `at` is a member.
    pub fn contains(&self, at: Svma) -> bool {
        self.parts.iter().any(|part| {
            let offset = at.0.wrapping_sub(part.range.start);
            offset < part.range.end - part.range.start
                && part.words[(offset / 64) as usize] >> (offset % 64) & 1 == 1
        })
    }

    /// The members in `range`, ascending if the set's own ranges are.
    pub fn within(&self, range: Range<Svma>) -> impl Iterator<Item = Svma> + '_ {
        self.parts.iter().flat_map(move |part| {
            let low = range.start.0.max(part.range.start);
            let high = range.end.0.min(part.range.end);
            members(part, low, high)
        })
    }
}

fn members(part: &Part, low: u64, high: u64) -> impl Iterator<Item = Svma> + '_ {
    let base = part.range.start;
    let (first, last) = if low < high {
        ((low - base) / 64, (high - 1 - base) / 64 + 1)
    } else {
        (0, 0)
    };
    (first..last).flat_map(move |index| {
        let mut word = part.words[index as usize];
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros())?;
            word &= word - 1;
            Some(base + index * 64 + u64::from(bit))
        })
        .filter(move |at| (low..high).contains(at))
        .map(Svma)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back_in_order_and_only_from_the_ranges() {
        let mut set =
            AddressSet::over([Svma(0x1000)..Svma(0x1100), Svma(0x2000)..Svma(0x2010)].into_iter());
        for at in [0x10ff, 0x1000, 0x1040, 0x1100, 0x2003, 0xfff] {
            set.insert(at);
        }
        let all: Vec<_> = set.within(Svma(0)..Svma(u64::MAX)).map(|a| a.0).collect();
        assert_eq!(all, [0x1000, 0x1040, 0x10ff, 0x2003]);
        let some: Vec<_> = set
            .within(Svma(0x1001)..Svma(0x10ff))
            .map(|a| a.0)
            .collect();
        assert_eq!(some, [0x1040]);
        assert!(set.contains(Svma(0x2003)) && !set.contains(Svma(0x1100)));
    }
}
