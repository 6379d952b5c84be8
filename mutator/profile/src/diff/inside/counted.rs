//! The counts inside the functions of one profile.

use crate::diff::matching::{Site, Sites};
use crate::profile::{Inside, Profile};
use std::collections::{BTreeMap, HashSet};

/// A source file and a line in it.
pub(super) type Line = (String, u32);

/// The counts inside one function of a profile. Several graphs of it are added up.
pub(super) struct Counted<'p> {
    pub(super) profile: &'p Profile,
    /// There is at least one.
    pub(super) graphs: Vec<&'p Inside>,
    pub(super) activations: u64,
    pub(super) lines: BTreeMap<Line, u64>,
}

/// The functions of a profile whose control flow was counted, by their sites.
pub(super) fn counted<'p>(
    profile: &'p Profile,
    common: &HashSet<&str>,
) -> BTreeMap<Site, Counted<'p>> {
    let sites = Sites::of(profile, common).functions;
    let mut all: BTreeMap<Site, Counted<'p>> = BTreeMap::new();
    for inside in &profile.inside {
        let site = sites[inside.function].clone();
        let sum = all.entry(site).or_insert_with(|| Counted {
            profile,
            graphs: Vec::new(),
            activations: 0,
            lines: BTreeMap::new(),
        });
        sum.graphs.push(inside);
        let activations = inside.activations(profile.functions[inside.function].address);
        sum.activations = sum.activations.saturating_add(activations);
        for ((file, line), count) in inside.lines() {
            let known = sum.lines.entry((file.to_owned(), line)).or_default();
            *known = known.saturating_add(count);
        }
    }
    all
}
