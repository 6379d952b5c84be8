//! Which bytes of the target functions change, and which must stay for their sake.

use std::collections::BTreeMap;
use std::ops::Range;

use patcher::{Avma, Svma};

use super::Candidate;
use crate::segment::{Document, KeptDoc};

/// The bytes that the functions of a session have, each changed by one of them at most.
#[derive(Default)]
pub(super) struct Claims {
    /// The ends of what is changed, by its start. Nothing overlaps.
    changed: BTreeMap<Avma, Avma>,
    /// The same of what punned jumps depend on, which may overlap.
    kept: BTreeMap<Avma, Avma>,
}

/// No punned jump depends on more bytes.
const MOST_KEPT: u64 = 4;

impl Claims {
    /// What functions that are in the session have, those taken out for now included; but for these ids.
    pub(super) fn of(document: &Document, without: &[usize]) -> Self {
        let mut claims = Self::default();
        let functions = document.functions.iter().enumerate();
        let functions = functions.filter(|(id, _)| !without.contains(id));
        for site in functions.flat_map(|(_, f)| &f.sites) {
            claims.change(site.window.clone());
            claims.change(site.landing.clone());
            let KeptDoc { at, bytes } = &site.kept;
            claims.keep(*at..at.plus(bytes.len() as u64));
        }
        claims
    }

    /// Gives a function what it needs; `false` where it gets in the way of those that are there.
    pub(super) fn admit(&mut self, candidate: &Candidate) -> bool {
        let at = |r: &Range<Svma>| candidate.bias.to_avma(r.start)..candidate.bias.to_avma(r.end);
        let sites = &candidate.plan.sites;
        let changed = || {
            let landings = sites.iter().filter_map(|s| s.landing.as_ref());
            sites.iter().map(|s| &s.window).chain(landings).map(at)
        };
        let kept = || {
            let puns = sites.iter().filter_map(|s| s.pun.as_ref());
            puns.map(|pun| at(&pun.depends))
        };
        let free = changed().all(|r| !self.is_changed(&r) && !self.is_kept(&r))
            && kept().all(|r| !self.is_changed(&r));
        if free {
            changed().for_each(|r| self.change(r));
            kept().for_each(|r| self.keep(r));
        }
        free
    }

    /// What a window leaves over for another site's landing is changed with the window.
    fn change(&mut self, range: Range<Avma>) {
        if !range.is_empty() && !self.is_changed(&range) {
            self.changed.insert(range.start, range.end);
        }
    }

    fn keep(&mut self, range: Range<Avma>) {
        if !range.is_empty() {
            let end = self.kept.entry(range.start).or_default();
            *end = range.end.max(*end);
        }
    }

    fn is_changed(&self, range: &Range<Avma>) -> bool {
        let last = self.changed.range(..range.end).next_back();
        last.is_some_and(|(_, &end)| end > range.start)
    }

    fn is_kept(&self, range: &Range<Avma>) -> bool {
        let first = Avma(range.start.0.saturating_sub(MOST_KEPT));
        let near = self.kept.range(first..range.end);
        near.into_iter().any(|(_, &end)| end > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::{Avma, Claims, Range};

    fn range(start: u64, end: u64) -> Range<Avma> {
        Avma(start)..Avma(end)
    }

    #[test]
    fn what_is_changed_is_found_from_either_side() {
        let mut claims = Claims::default();
        claims.change(range(10, 15));
        claims.change(range(20, 22));
        assert!(claims.is_changed(&range(14, 16)) && claims.is_changed(&range(8, 11)));
        assert!(claims.is_changed(&range(0, 30)) && claims.is_changed(&range(21, 22)));
        assert!(!claims.is_changed(&range(15, 20)) && !claims.is_changed(&range(0, 10)));
    }

    #[test]
    fn what_is_kept_may_overlap() {
        let mut claims = Claims::default();
        claims.keep(range(10, 12));
        claims.keep(range(10, 14));
        claims.keep(range(11, 15));
        assert!(claims.is_kept(&range(14, 20)) && claims.is_kept(&range(5, 11)));
        assert!(!claims.is_kept(&range(15, 20)) && !claims.is_kept(&range(5, 10)));
        assert!(!claims.is_changed(&range(10, 15)));
    }

    #[test]
    fn a_landing_in_a_window_is_part_of_it() {
        let mut claims = Claims::default();
        claims.change(range(10, 20));
        claims.change(range(15, 20));
        claims.change(range(0, 0));
        assert_eq!(claims.changed.len(), 1);
    }
}
