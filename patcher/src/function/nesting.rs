//! Which of several ranges holds an address, where ranges overlap.

use crate::addr::Svma;

const NONE: u32 = u32::MAX;

/// For each of many ranges, ordered by start, the nearest one before it that ends later.
///
/// No range between the two can hold an address that the later of them does not hold: so a search
/// that follows these links finds the innermost range that holds an address.
#[derive(Default)]
pub(super) struct Nesting(Vec<u32>);

impl Nesting {
    /// `ends` of the ranges, in the order of their starts.
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

    /// The innermost of the first `count` ranges, all of which start at or before an address,
    /// for which `reaches` says that it ends after that address.
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
