//! A profile that is kept up to date with the counters.

use std::collections::{BTreeSet, HashMap};

use abi::segment::{ROOT_COMPLETE, ROOT_CUT, ROOT_OVERFLOW, caller_of_site};
use abi::shortage::Shortage;
use patcher::Avma;

use super::callers::Callers;
use super::frames::Frames;
use super::heads::Heads;
use super::inside::Insides;
use super::measured::Measured;
use super::net::{Checked, Net};
use super::paths::{New, Paths};
use super::places::Site;
use super::raw::Raw;
use super::records::Reader;
use super::rules::Schemas;
use super::single::SingleCalls;
use super::stats::Measures;
use super::totals::{Sums, Totals};
use super::{apart, functions, head};
use crate::segment::{FunctionDoc, Segment};
use ipath_profile::timeline::Timeline;
use ipath_profile::{Counts, Exactness, PathEntry, Profile};

/// The profile at the last look, with the state that is needed to update it. It is based on one
/// reading of the document.
pub(super) struct Build {
    pub(super) profile: Profile,
    /// Threads with paths, if paths are kept apart by thread.
    pub(super) threads: BTreeSet<u32>,
    /// True if paths are kept apart by phase.
    keeps_phases: bool,
    /// For each function, in the order of the profile.
    exits: Vec<Exits>,
    schemas: Schemas,
    measures: Measures,
    insides: Insides,
    heads: Heads,
    paths: Paths,
    single: SingleCalls,
    net: Net,
    /// The result of checking each path against the code. Paths that share the overflow entry have
    /// none.
    checked: Vec<Option<Checked>>,
    totals: Totals,
    /// For each function, the frame of the call if it is an inlined copy.
    callers: Vec<Option<usize>>,
    /// The frames of paths inside functions, by function and number.
    paths_inside: HashMap<(usize, u64), usize>,
    /// The frames of paths of measured functions only. `None` if paths have call sites.
    measured_callers: Option<Callers>,
    /// The sum of a path's records.
    raw: Raw,
    /// A buffer for one record.
    one: Raw,
}

/// Knowledge about the ends of a function's calls.
struct Exits {
    /// True if the function's exits have probes.
    are_in: bool,
    /// True if the function's exits may have had probes before.
    have_been: bool,
}

impl Build {
    /// Builds the profile from the current counters.
    pub(super) fn new(
        measured: Measured<'_>,
        frames: &mut Frames,
        timeline: &mut Timeline,
    ) -> Self {
        let document = measured.document;
        frames.begin(document);
        let measures = Measures::of(document);
        let mut profile = head::begin(measured);
        functions::add(&mut profile, frames, &measures, document);
        let callers = functions::callers_of_copies(&mut profile, frames, document);
        profile.exactness = Some(Exactness::default());
        let exits = |(_, function): (usize, &FunctionDoc)| Exits {
            are_in: function.has_exits(),
            have_been: !function.exits.is_empty(),
        };
        let exits: Vec<Exits> = document.rows().map(exits).collect();
        let ends = exits.iter().map(|exits| exits.are_in).collect();
        let insides = Insides::of(document, frames);
        let raw = Raw::empty(document.metrics.len().saturating_sub(1));
        let mut build = Self {
            profile,
            threads: BTreeSet::new(),
            keeps_phases: document.keeps_phases(),
            exits,
            schemas: Schemas::of(document),
            totals: Totals::new(measures.zeroes().iter().len(), ends),
            measures,
            insides,
            heads: Heads::default(),
            paths: Paths::of(document),
            single: SingleCalls::of(document),
            net: Net::default(),
            checked: Vec::new(),
            callers,
            measured_callers: Callers::of(document),
            paths_inside: HashMap::new(),
            one: raw.clone(),
            raw,
        };
        build.single.read(measured.segment);
        build.heads.look(measured.segment);
        build.take_in(measured.segment, frames, timeline);
        build
    }

    /// Updates the paths, and returns the indexes of those that changed, ascending. Returns `None`
    /// if the records have been replaced, so that the profile must be built again.
    pub(super) fn look(
        &mut self,
        segment: &Segment,
        frames: &mut Frames,
        timeline: &mut Timeline,
    ) -> Option<Vec<u32>> {
        self.single.read(segment);
        let is_same = self.heads.look(segment);
        is_same.then(|| self.take_in(segment, frames, timeline))
    }

    /// Reads the changed records into the profile. Returns the indexes of the changed paths,
    /// ascending.
    fn take_in(
        &mut self,
        segment: &Segment,
        frames: &mut Frames,
        timeline: &mut Timeline,
    ) -> Vec<u32> {
        let Self {
            profile,
            measures,
            threads,
            net,
            checked,
            callers,
            measured_callers,
            ..
        } = self;
        let former = profile.paths.len();
        let keeps_phases = self.keeps_phases;
        let Self {
            insides,
            paths_inside,
            ..
        } = self;
        self.paths.look(segment, &self.heads, |mut new| {
            threads.extend(new.thread);
            let inner = new.take_path_inside();
            let mut apart = apart::apart(&new.take_parts());
            // Calls from before the first mark.
            apart.phase = apart.phase.or(keeps_phases.then_some(0));
            let entry = entry_of(profile, new.function);
            // The code has no edges between functions that do not call each other.
            let has_edges = measured_callers.is_none();
            let check = has_edges.then(|| net.check(frames, &new, entry)).flatten();
            checked.push(check);
            let inside = inner.map(|number| {
                let key = (new.function, number);
                *paths_inside.entry(key).or_insert_with(|| {
                    let frame = insides.frame_of_path(profile, new.function, number);
                    profile.frames.push(frame);
                    profile.frames.len() - 1
                })
            });
            let caller = callers.get(new.function).copied().flatten().or(inside);
            let mut frame = |profile: &mut Profile, site: Site| {
                let measured = measured_callers.as_mut().zip(caller_of_site(site.0));
                match measured {
                    Some((callers, id)) => callers.frame(profile, id),
                    None => frames.frame(profile, site),
                }
            };
            let mut path = path(profile, (&mut frame, caller), measures, new, check);
            (path.phase, path.by, path.slower) = (apart.phase, apart.by, apart.slower);
            profile.paths.push(path);
        });
        let changed = self.paths.take_changed();
        let mut reader = Reader::new(segment, &self.schemas);
        for &index in &changed {
            let root = self.paths.root(index as usize);
            let path = &mut profile.paths[index as usize];
            let checked = self.checked[index as usize];
            let mut sums = Sums {
                functions: &mut profile.functions,
                losses: &mut profile.losses,
                exactness: profile.exactness.get_or_insert_default(),
            };
            if (index as usize) < former {
                self.totals.take(&mut sums, path, root, checked);
            }
            self.raw.clear();
            for (nth, record) in self.paths.records(index).enumerate() {
                let is_still = self.heads.is_still(record);
                if nth == 0 {
                    reader.read(record, is_still, &mut self.raw);
                } else {
                    reader.read(record, is_still, &mut self.one);
                    self.raw.add(&self.one);
                }
            }
            let raw = &self.raw;
            let Exits { are_in, have_been } = self.exits[path.function];
            let has_exits = are_in || raw.sees_ends && have_been;
            path.unwound = has_exits.then_some(raw.unwound);
            path.open = has_exits.then(|| raw.open());
            path.tail = raw.tail;
            path.metrics.count = raw.entered;
            measures.write(raw, &mut path.metrics.timers);
            self.totals.put(&mut sums, path, root, checked);
        }
        self.totals.end(profile, &self.paths, &self.checked);
        if self.measured_callers.is_some() {
            profile.exactness = None;
        }
        profile.inside = self.insides.look(segment);
        profile.time_inside();
        profile.count_throttled();
        self.single.write(segment, &self.paths, timeline, profile);
        changed
    }

    /// Records an overflow if paths share an entry because all paths together have too many frames.
    pub(super) fn note_frames(&mut self) {
        if self.paths.has_too_many_frames() {
            let by = &mut self.profile.losses.overflow_by;
            by.insert(Shortage::Frames.name().to_owned());
        }
    }
}

/// A path without any counts yet.
fn path(
    profile: &mut Profile,
    (frame, caller): (&mut impl FnMut(&mut Profile, Site) -> usize, Option<usize>),
    measures: &Measures,
    new: New<'_>,
    checked: Option<Checked>,
) -> PathEntry {
    let checked = checked.unwrap_or_default();
    let caller = caller.filter(|_| new.root != ROOT_OVERFLOW);
    let stack = new.stack.iter().map(|&site| frame(profile, site));
    let stack: Vec<usize> = caller.into_iter().chain(stack).collect();
    let contradicted = checked.contradicted;
    PathEntry {
        function: new.function,
        stack,
        complete: matches!(new.root, ROOT_COMPLETE | ROOT_CUT) && checked.cause.is_none(),
        contradicted: contradicted.map(|at| at + usize::from(caller.is_some())),
        thread: new.thread,
        unwound: None,
        open: None,
        tail: 0,
        metrics: Counts {
            count: 0,
            timers: measures.zeroes(),
        },
        spread: None,
        process: None,
        phase: None,
        by: None,
        slower: false,
    }
}

/// The address of a function's entry in the process.
fn entry_of(profile: &Profile, function: usize) -> Avma {
    let function = &profile.functions[function];
    let base = profile.modules[function.module].base.unwrap_or(0);
    Avma(function.address.wrapping_add(base))
}
