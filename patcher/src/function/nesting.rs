//! Finds the innermost of overlapping ranges that contains an address.

use crate::addr::Svma;

const NONE: u32 = u32::MAX;

/// For each of many ranges, ordered by start, the nearest earlier one that ends later.
///
/// A range between the two cannot contain an address that the later one does not contain. So a
/// search along these links finds the innermost range that contains an address.
#[derive(Default)]
pub(super) struct Nesting(Vec<u32>);

impl Nesting {
    /// `ends` are the ends of the ranges, in the order of their starts.
    pub(super) fn new(ends: impl Iterator<Item = Svma>) -> Self {
        let mut links = Vec::new();
        let mut open: Vec<(u32, Svma)> = Vec::new();
        for (index, end) in (0u32..).zip(ends) {
            while open.pop_if(|o| o.1 <= end).is_some() {}
            links.push(open.last().map_or(NONE, |o| o.0));
            open.push((index, end));
        }
        Self(links)
    }

    /// The index of the innermost of the first `count` ranges that contains an address; `None` if
    /// none does.
    ///
    /// These ranges all start at or before the address. `reaches` is true for a range that ends
    /// after it.
    pub(super) fn innermost(&self, count: usize, reaches: impl Fn(usize) -> bool) -> Option<usize> {
        let mut index = count.checked_sub(1)?;
        while !reaches(index) {
            index = self
                .0
                .get(index)
                .filter(|&&l| l != NONE)
                .map(|&l| l as usize)?;
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Nesting;
    use crate::addr::Svma;

    proptest! {
        #[test]
        fn finds_what_a_search_of_all_finds(
            mut ranges in prop::collection::vec((0u64..60, 1u64..40), 0..30),
            at in 0u64..100,
        ) {
            ranges.sort_unstable();
            let nesting = Nesting::new(ranges.iter().map(|&(start, len)| Svma(start + len)));
            let count = ranges.partition_point(|r| r.0 <= at);
            let found = nesting.innermost(count, |i| at < ranges[i].0 + ranges[i].1);
            let expected = ranges[..count].iter().rposition(|&(start, len)| at < start + len);
            prop_assert_eq!(found, expected);
        }
    }
}
