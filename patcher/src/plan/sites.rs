//! The sites of one function while they are made, by address.

use std::collections::btree_map::Values;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::draft::Draft;
use super::point::ProbePoint;
use crate::isa::JUMP;
#[cfg(test)]
use crate::looks;

/// Sites whose windows do not overlap, and neither do the bytes that punned jumps depend on. No question and no
/// change goes over all of them.
#[derive(Default)]
pub struct Sites {
    /// By the start of the window.
    drafts: BTreeMap<u64, Draft>,
    /// Where the long jumps of springboards are.
    landings: BTreeSet<u64>,
    changes: Vec<Change>,
}

/// What has been done, so that it can be undone.
enum Change {
    /// The window of the site starts there.
    Added(u64),
    Removed(Draft),
}

/// A state to which the sites can be brought back.
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl Sites {
    pub fn insert(&mut self, draft: Draft) {
        self.changes.push(Change::Added(draft.window.start));
        self.put(draft);
    }

    /// Removes the site whose window starts at `start`.
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

    pub fn mark(&self) -> Mark {
        Mark(self.changes.len())
    }

    /// Undoes what has been done since `mark`, but for points added to sites.
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

    /// The sites that have been added since `mark` and are still there.
    pub fn added_since(&self, mark: Mark) -> impl Iterator<Item = &Draft> {
        let changes = self.changes[mark.0..].iter();
        changes.filter_map(|change| match change {
            Change::Added(start) => self.drafts.get(start),
            Change::Removed(_) => None,
        })
    }

    /// All of them, by address.
    pub fn iter(&self) -> Values<'_, u64, Draft> {
        self.drafts.values()
    }

    /// Removes all of them, for good.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The site whose window starts at `start`.
    pub fn starting_at(&self, start: u64) -> Option<&Draft> {
        self.drafts.get(&start)
    }

    /// The site whose window holds `at`.
    pub fn holding(&self, at: u64) -> Option<&Draft> {
        self.overlapping(&(at..at + 1)).next()
    }

    /// Adds `point` to the site whose window holds `at`, if `serves` is true of it.
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

    /// The sites whose windows overlap `range`, from the last to the first.
    pub fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = &Draft> {
        let start = range.start;
        let before = self.drafts.range(..range.end).rev().map(|(_, draft)| draft);
        #[cfg(test)]
        let before = before.inspect(|_| looks::add(1));
        before.take_while(move |draft| draft.window.end > start)
    }

    /// The long jumps of springboards that overlap `range`, by address.
    pub fn landings_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = (range.start + 1).saturating_sub(JUMP);
        let landings = self.landings.range(first..range.end).copied();
        #[cfg(test)]
        let landings = landings.inspect(|_| looks::add(1));
        landings.map(|at| at..at + JUMP)
    }

    /// Is there a long jump of a springboard in `range`, or what the punned jump of a window before it depends on?
    pub fn is_reserved(&self, range: &Range<u64>) -> bool {
        let before = self.drafts.range(..range.start).next_back();
        let depends = before.and_then(|(_, draft)| draft.depends());
        depends.is_some_and(|depends| depends.start <= range.start && range.start < depends.end)
            || self.landings_in(range).next().is_some()
    }

    /// Does no site change any of these bytes, or depend on them?
    pub fn is_clear(&self, range: &Range<u64>) -> bool {
        self.overlapping(range).next().is_none() && !self.is_reserved(range)
    }
}
