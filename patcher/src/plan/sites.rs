//! The sites of one function during planning, by address.

use std::collections::btree_map::Values;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::draft::Draft;
use super::point::ProbePoint;
use crate::isa::JUMP;
#[cfg(test)]
use crate::looks;

/// A set of sites in which no two overlap: neither windows nor the bytes that punned jumps depend
/// on. No query and no change visits all sites.
#[derive(Default)]
pub struct Sites {
    /// The sites, by the start of the window.
    drafts: BTreeMap<u64, Draft>,
    /// The addresses of the long jumps of springboards.
    landings: BTreeSet<u64>,
    /// All changes so far, the oldest first.
    changes: Vec<Change>,
}

/// A change, recorded so that it can be undone.
enum Change {
    /// The added site's window starts here.
    Added(u64),
    /// The removed site.
    Removed(Draft),
}

/// A state that [`Sites::roll_back`] can restore.
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl Sites {
    /// Adds a site, which must not overlap any other.
    pub fn insert(&mut self, draft: Draft) {
        self.changes.push(Change::Added(draft.window.start));
        self.put(draft);
    }

    /// Removes the site whose window starts at `start`, if there is one.
    pub fn remove(&mut self, start: u64) {
        let removed = self.take(start);
        self.changes.extend(removed.map(Change::Removed));
    }

    fn put(&mut self, draft: Draft) {
        self.landings.extend(draft.landing);
        self.drafts.insert(draft.window.start, draft);
    }

    fn take(&mut self, start: u64) -> Option<Draft> {
        let draft = self.drafts.remove(&start)?;
        if let Some(landing) = draft.landing {
            self.landings.remove(&landing);
        }
        Some(draft)
    }

    /// The present state, for [`Sites::roll_back`].
    pub fn mark(&self) -> Mark {
        Mark(self.changes.len())
    }

    /// Undoes all changes since `mark`, except for points added to sites.
    pub fn roll_back(&mut self, mark: Mark) {
        while self.changes.len() > mark.0
            && let Some(change) = self.changes.pop()
        {
            match change {
                Change::Added(start) => {
                    self.take(start);
                }
                Change::Removed(draft) => self.put(draft),
            }
        }
    }

    /// The sites that were added since `mark` and are still present.
    pub fn added_since(&self, mark: Mark) -> impl Iterator<Item = &Draft> {
        let changes = self.changes[mark.0..].iter();
        changes.filter_map(|change| match change {
            Change::Added(start) => self.drafts.get(start),
            Change::Removed(_) => None,
        })
    }

    /// All sites, by address.
    pub fn iter(&self) -> Values<'_, u64, Draft> {
        self.drafts.values()
    }

    /// Removes all sites; this cannot be undone.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The site whose window starts at `start`, if there is one.
    pub fn starting_at(&self, start: u64) -> Option<&Draft> {
        self.drafts.get(&start)
    }

    /// The site whose window contains `at`, if there is one.
    pub fn holding(&self, at: u64) -> Option<&Draft> {
        self.overlapping(&(at..at + 1)).next()
    }

    /// Adds `point` to the site whose window contains `at`, if `serves` returns true for that site.
    /// Returns the site; `None` if nothing was added.
    pub fn join(
        &mut self,
        at: u64,
        point: ProbePoint,
        serves: impl Fn(&Draft) -> bool,
    ) -> Option<&Draft> {
        let (_, draft) = self.drafts.range_mut(..=at).next_back()?;
        if !draft.window.contains(&at) || !serves(draft) {
            return None;
        }
        draft.points.push(point);
        Some(draft)
    }

    /// The sites whose windows overlap `range`, in descending order.
    pub fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = &Draft> {
        let start = range.start;
        let before = self.drafts.range(..range.end).rev().map(|(_, draft)| draft);
        #[cfg(test)]
        let before = before.inspect(|_| looks::add(1));
        before.take_while(move |draft| draft.window.end > start)
    }

    /// The ranges of springboards' long jumps that overlap `range`, in ascending order.
    pub fn landings_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = (range.start + 1).saturating_sub(JUMP);
        let landings = self.landings.range(first..range.end).copied();
        #[cfg(test)]
        let landings = landings.inspect(|_| looks::add(1));
        landings.map(|at| at..at + JUMP)
    }

    /// True if `range` overlaps a springboard's long jump, or starts in bytes that a punned jump of
    /// an earlier window depends on.
    pub fn is_reserved(&self, range: &Range<u64>) -> bool {
        let before = self.drafts.range(..range.start).next_back();
        let depends = before.and_then(|(_, draft)| draft.depends());
        depends.is_some_and(|depends| depends.start <= range.start && range.start < depends.end)
            || self.landings_in(range).next().is_some()
    }

    /// True if no site changes any byte of `range` or depends on it.
    pub fn is_clear(&self, range: &Range<u64>) -> bool {
        self.overlapping(range).next().is_none() && !self.is_reserved(range)
    }
}
