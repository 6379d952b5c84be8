//! Claims of functions on bytes of the target: the bytes they change, and the bytes their jumps
//! depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use patcher::{Avma, Bias, Svma};

use super::Candidate;
use super::candidate::FunctionPlace;
use crate::segment::{Document, KeptDoc, Role};

/// The owner of bytes: a function, and its use of them.
type Owner = (FunctionPlace, Use);

/// A function's use of the bytes that it changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    /// A witness whose task measuring cannot take over.
    Witness,
    /// Measuring, or a witness or ender that measuring can replace. The two are never in at once
    /// and may change the same bytes.
    Calls,
    /// Points, by the id of the carrier of their hooks. `None` stands for all points of a function
    /// that come in together.
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

/// The bytes claimed by the functions of a session. Only one owner may change each byte.
#[derive(Default)]
pub(super) struct Claims {
    /// Changed ranges by start, with end and owner. They do not overlap.
    changed: BTreeMap<Avma, (Avma, Owner)>,
    /// The ends of ranges that punned jumps depend on, by start and owner. They may overlap.
    kept: BTreeMap<(Avma, Owner), Avma>,
}

/// The most bytes that a punned jump depends on.
const MOST_KEPT: u64 = 4;

/// The bytes that a candidate needs.
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

/// The owner of the bytes that a candidate needs.
fn owner(candidate: &Candidate) -> Owner {
    let of = if candidate.is_carrier() {
        Use::Points(None)
    } else {
        Use::of(candidate.role)
    };
    (candidate.place(), of)
}

impl Claims {
    /// The claims of the session's functions, including those that are out for now.
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

    /// Claims the bytes that a candidate needs. Returns `false` if other functions are in the way.
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

    /// The other functions whose claims conflict with a candidate.
    pub(super) fn in_the_way_of(&self, candidate: &Candidate) -> BTreeSet<FunctionPlace> {
        let needs = Needs::of(candidate);
        let changed = needs.changed.iter().chain(&needs.kept);
        let changed = changed.flat_map(|range| self.changing(range));
        let kept = needs.changed.iter().flat_map(|range| self.keeping(range));
        let own = owner(candidate);
        let others = changed.chain(kept).filter(|other| *other != own);
        others.map(|(place, _)| place).collect()
    }

    /// Claims a range to change, unless another owner has bytes in it. A landing in the unused
    /// bytes of its own window merges with that window.
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

    /// Records that a punned jump of the owner depends on the range.
    fn keep(&mut self, range: &Range<Avma>, owner: Owner) {
        if !range.is_empty() {
            let end = self.kept.entry((range.start, owner)).or_default();
            *end = range.end.max(*end);
        }
    }

    /// The changed ranges that overlap this one: start, end and owner, in descending order.
    fn overlapping(&self, range: &Range<Avma>) -> impl Iterator<Item = (&Avma, &(Avma, Owner))> {
        let start = range.start;
        let before = self.changed.range(..range.end).rev();
        before.take_while(move |(_, (end, _))| *end > start)
    }

    /// The owners of changes in the range.
    fn changing(&self, range: &Range<Avma>) -> impl Iterator<Item = Owner> {
        self.overlapping(range).map(|(_, &(_, owner))| owner)
    }

    /// The owners of punned jumps that depend on bytes in the range.
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
        // The bytes of another owner are not claimed.
        claims.change(&at(20..30), OTHER);
        assert_eq!(claims.changed.len(), 1);
    }
}
