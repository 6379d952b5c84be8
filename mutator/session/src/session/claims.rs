//! Which bytes of the target functions change, and which must stay for their sake.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use patcher::{Avma, Bias, Svma};

use super::Candidate;
use super::candidate::FunctionPlace;
use crate::segment::{Document, KeptDoc, Role};

/// Whose bytes are: a function's, and for what.
type Owner = (FunctionPlace, Use);

/// What bytes of a function are changed for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    /// What measuring it cannot do as well.
    Witness,
    /// What that can. It may be there twice, measured and not, and change the same bytes: the two are never in at once.
    Calls,
    /// Points, by the id of what has their hooks; one that has none yet stands for all of a function's that come together.
    Points(Option<usize>),
}

impl Use {
    fn of(role: Role) -> Self {
        if role.may_be_measured() {
            Self::Calls
        } else {
            Self::Witness
        }
    }
}

/// The bytes that the functions of a session have, each changed by one of them at most.
#[derive(Default)]
pub(super) struct Claims {
    /// The ends of what is changed and whose it is, by its start. Nothing overlaps.
    changed: BTreeMap<Avma, (Avma, Owner)>,
    /// The same of what punned jumps depend on, which may overlap.
    kept: BTreeMap<(Avma, Owner), Avma>,
}

/// No punned jump depends on more bytes.
const MOST_KEPT: u64 = 4;

/// What a candidate needs.
struct Needs {
    changed: Vec<Range<Avma>>,
    kept: Vec<Range<Avma>>,
}

impl Needs {
    fn of(candidate: &Candidate) -> Self {
        let at = |r: &Range<Svma>| candidate.bias.to_avma(r.start)..candidate.bias.to_avma(r.end);
        let sites = &candidate.plan.sites;
        let landings = sites.iter().filter_map(|s| s.landing.as_ref());
        let puns = sites.iter().filter_map(|s| s.pun.as_ref());
        Self {
            changed: sites
                .iter()
                .map(|s| &s.window)
                .chain(landings)
                .map(at)
                .collect(),
            kept: puns.map(|pun| at(&pun.depends)).collect(),
        }
    }
}

fn owner(candidate: &Candidate) -> Owner {
    let of = if candidate.points.is_empty() {
        Use::of(candidate.role)
    } else {
        Use::Points(None)
    };
    (candidate.place(), of)
}

impl Claims {
    /// What functions that are in the session have, those taken out for now included.
    pub(super) fn of(document: &Document) -> Self {
        let mut claims = Self::default();
        let functions = document.functions.iter().enumerate();
        for (id, function) in functions.filter(|(_, f)| !f.is_retired()) {
            let Some(place) = document.place_of(function) else {
                continue;
            };
            let of = match function.role {
                Role::Carrier => Use::Points(Some(id)),
                role => Use::of(role),
            };
            let owner = (place, of);
            for site in &function.sites {
                claims.change(&site.window, owner);
                claims.change(&site.landing, owner);
                let KeptDoc { at, bytes } = &site.kept;
                claims.keep(&(*at..at.plus(bytes.len() as u64)), owner);
            }
        }
        claims
    }

    /// Gives a function what it needs; `false` where it gets in the way of others that are there.
    pub(super) fn admit(&mut self, candidate: &Candidate) -> bool {
        let is_free = self.in_the_way_of(candidate).is_empty();
        if is_free {
            let needs = Needs::of(candidate);
            let owner = owner(candidate);
            needs.changed.iter().for_each(|r| self.change(r, owner));
            needs.kept.iter().for_each(|r| self.keep(r, owner));
        }
        is_free
    }

    /// The other functions that have what a candidate needs.
    pub(super) fn in_the_way_of(&self, candidate: &Candidate) -> BTreeSet<FunctionPlace> {
        let needs = Needs::of(candidate);
        let changed = needs.changed.iter().chain(&needs.kept);
        let changed = changed.flat_map(|range| self.changing(range));
        let kept = needs.changed.iter().flat_map(|range| self.keeping(range));
        let own = owner(candidate);
        let others = changed.chain(kept).filter(|other| *other != own);
        others.map(|(place, _)| place).collect()
    }

    /// What a window leaves over for another site's landing is changed with the window.
    fn change(&mut self, range: &Range<Avma>, owner: Owner) {
        if range.is_empty() || self.changing(range).any(|other| other != owner) {
            return;
        }
        let Range { mut start, mut end } = range.clone();
        let own = self.overlapping(range);
        for (from, to) in own.map(|(&from, &(to, _))| (from, to)).collect::<Vec<_>>() {
            self.changed.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.changed.insert(start, (end, owner));
    }

    fn keep(&mut self, range: &Range<Avma>, owner: Owner) {
        if !range.is_empty() {
            let end = self.kept.entry((range.start, owner)).or_default();
            *end = range.end.max(*end);
        }
    }

    fn overlapping(&self, range: &Range<Avma>) -> impl Iterator<Item = (&Avma, &(Avma, Owner))> {
        let start = range.start;
        let before = self.changed.range(..range.end).rev();
        before.take_while(move |(_, (end, _))| *end > start)
    }

    /// Whose the bytes are that are changed there.
    fn changing(&self, range: &Range<Avma>) -> impl Iterator<Item = Owner> {
        self.overlapping(range).map(|(_, &(_, owner))| owner)
    }

    /// Whose the punned jumps are that depend on them.
    fn keeping(&self, range: &Range<Avma>) -> impl Iterator<Item = Owner> {
        let first = Avma(range.start.0.saturating_sub(MOST_KEPT));
        let lowest = ((Bias(0), Svma(0)), Use::Witness);
        let near = self.kept.range((first, lowest)..(range.end, lowest));
        let start = range.start;
        let near = near.filter(move |&(_, &end)| end > start);
        near.map(|(&(_, owner), _)| owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = ((Bias(0), Svma(1)), Use::Calls);
    const OTHER: Owner = ((Bias(0), Svma(1)), Use::Witness);

    fn at(range: Range<u64>) -> Range<Avma> {
        Avma(range.start)..Avma(range.end)
    }

    fn changed(claims: &Claims, range: Range<u64>) -> bool {
        claims.changing(&at(range)).next().is_some()
    }

    fn kept(claims: &Claims, range: Range<u64>) -> bool {
        claims.keeping(&at(range)).next().is_some()
    }

    #[test]
    fn what_is_changed_is_found_from_either_side() {
        let mut claims = Claims::default();
        claims.change(&at(10..15), ONE);
        claims.change(&at(20..22), OTHER);
        assert!(changed(&claims, 14..16) && changed(&claims, 8..11));
        assert!(changed(&claims, 0..30) && changed(&claims, 21..22));
        assert!(!changed(&claims, 15..20) && !changed(&claims, 0..10));
        let both: Vec<Owner> = claims.changing(&at(0..30)).collect();
        assert_eq!(both, [OTHER, ONE]);
    }

    #[test]
    fn what_is_kept_may_overlap() {
        let mut claims = Claims::default();
        claims.keep(&at(10..12), ONE);
        claims.keep(&at(10..14), OTHER);
        claims.keep(&at(11..15), ONE);
        assert!(kept(&claims, 14..20) && kept(&claims, 5..11));
        assert!(!kept(&claims, 15..20) && !kept(&claims, 5..10));
        assert!(!changed(&claims, 10..15));
        let both: BTreeSet<Owner> = claims.keeping(&at(10..14)).collect();
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn a_landing_in_a_window_is_part_of_it() {
        let mut claims = Claims::default();
        claims.change(&at(10..20), ONE);
        claims.change(&at(15..20), ONE);
        claims.change(&at(0..0), ONE);
        assert_eq!(claims.changed.len(), 1);
    }

    #[test]
    fn one_function_has_what_it_changes_either_way() {
        let mut claims = Claims::default();
        claims.change(&at(10..15), ONE);
        claims.change(&at(18..22), ONE);
        claims.change(&at(12..19), ONE);
        assert_eq!(
            claims.changed,
            BTreeMap::from([(Avma(10), (Avma(22), ONE))])
        );
        // Not what another one has.
        claims.change(&at(20..30), OTHER);
        assert_eq!(claims.changed.len(), 1);
    }
}
