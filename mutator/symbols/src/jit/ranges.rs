//! Names by address. Later ones replace earlier ones.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use patcher::Avma;

/// The maximum number of pieces of code to keep.
const MAX_RANGES: usize = 1 << 21;

/// A piece of code that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// First address of the function in the process.
    pub start: Avma,
    /// Its name, as the compiler recorded it.
    pub name: Arc<str>,
    /// The time of its arrival. It is comparable only within one source of names.
    time: u64,
}

/// The named code by address.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// By first address, with the end address. Ranges do not overlap: an overwritten one keeps only
    /// its remaining parts.
    all: BTreeMap<Avma, (Avma, Named)>,
}

impl Ranges {
    /// The code at an address. `None` if it has no name.
    pub(super) fn at(&self, at: Avma) -> Option<&Named> {
        let (_, (end, named)) = self.all.range(..=at).next_back()?;
        (at < *end).then_some(named)
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.values().map(|(_, named)| &*named.name)
    }

    /// Adds code with this name. It replaces the parts of older code that it overlaps. Nothing is
    /// added if it overlaps later code, is empty, or if there are [`MAX_RANGES`] already.
    pub(super) fn insert(&mut self, range: Range<Avma>, time: u64, name: &Arc<str>) {
        if range.start >= range.end || self.all.len() >= MAX_RANGES {
            return;
        }
        let before = self.all.range(..range.end).rev();
        let overlaps = before.take_while(|(_, (end, _))| *end > range.start);
        let overlapped: Vec<Avma> = overlaps.map(|(start, _)| *start).collect();
        let is_later = |start: &Avma| self.all[start].1.time > time;
        if overlapped.iter().any(is_later) {
            return;
        }
        for start in overlapped {
            let Some((end, named)) = self.all.remove(&start) else {
                continue;
            };
            if start < range.start {
                self.all.insert(start, (range.start, named.clone()));
            }
            if range.end < end {
                self.all.insert(range.end, (end, named));
            }
        }
        let named = Named {
            start: range.start,
            name: Arc::clone(name),
            time,
        };
        self.all.insert(range.start, (range.end, named));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_at(ranges: &Ranges, at: u64) -> Option<(&str, u64)> {
        ranges.at(Avma(at)).map(|n| (&*n.name, n.start.0))
    }

    #[test]
    fn later_code_takes_the_place_of_earlier_code() {
        let mut ranges = Ranges::default();
        let mut insert = |start, end, time, name: &str| {
            ranges.insert(Avma(start)..Avma(end), time, &name.into());
        };
        insert(100, 200, 1, "all");
        insert(120, 140, 2, "inner");
        insert(190, 250, 3, "beyond");
        insert(130, 135, 1, "earlier");
        insert(300, 300, 4, "empty");
        assert_eq!(name_at(&ranges, 99), None);
        assert_eq!(name_at(&ranges, 100), Some(("all", 100)));
        assert_eq!(name_at(&ranges, 132), Some(("inner", 120)));
        assert_eq!(name_at(&ranges, 140), Some(("all", 100)), "its second part");
        assert_eq!(name_at(&ranges, 195), Some(("beyond", 190)));
        assert_eq!(name_at(&ranges, 300), None);
    }
}
