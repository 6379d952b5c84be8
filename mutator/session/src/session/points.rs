//! Points: instructions whose executions are counted individually.
//!
//! A *carrier* is a row of the document that only has sites. It has the hooks of a function's
//! points, and those of the function if it is measured from the same moment. A carrier is in as
//! long as one of them is.

use std::collections::{BTreeMap, BTreeSet};

use patcher::function::Function;
use patcher::inside::{self, Inside, NeverReturning, Part};
use patcher::plan::{FunctionPlan, RefuseReason};
use patcher::select::Spot;
use patcher::{Bias, Svma};

use super::candidate::{Candidate, FunctionPlace, Point, display_name};
use super::counted::{Counted, Wanted};
use super::inlined::is_named_copy;
use super::pointed::{Pointed, plan_with};
use super::refusal::Refusal;
use super::refusing::{add_refused, id_of_module};
use super::relaid::with_edges;
use super::rows::row_of;
use super::spans::{paths, spans};
use super::spots::{inside, places, unmatched, unreadable};
use super::values::WantedValues;
use super::{Changed, Selected, Selection, Session, SessionError};
use crate::segment::{CopyDoc, Document, FunctionDoc, RefusedDoc, Role};
use ipath_target::process::Space;
use ipath_target::process::modules::{Module, modules};

/// Why paths are not timed beside other spans. A path ends in the middle of a loop.
pub(super) const OTHER_SPANS: &str = "its paths and other parts of it are not timed together";

/// The profile's note on points if times are measured.
const NOTE: &str = "points (FUNC+0xOFFSET) are only counted";

/// The profile's note on inlined copies.
const NOTE_ON_COPIES: &str = "inlined copies: executions without code of their own, which \
    compilers remove or merge with others, are not counted";

impl Selected {
    /// Looks the places up in the modules and determines whether they can have points.
    pub fn find_points(&mut self, spots: &[Spot]) {
        self.selection.find_points(&self.modules, spots);
    }

    /// Completes a selection by patterns: adds the points at these places, permits breakpoints if
    /// allowed, and locates these values of each function.
    pub fn complete(&mut self, spots: &[Spot], allows_traps: bool, wanted: &WantedValues) {
        self.find_points(spots);
        if allows_traps {
            self.selection.allow_traps();
        }
        self.find_values(wanted);
    }
}

/// The counts and times that a command requests inside one function.
#[derive(Default)]
struct Asked {
    counts: Wanted,
    /// The headers of the loops to be timed.
    loops: BTreeSet<Svma>,
    paths: bool,
}

impl Asked {
    /// Adds a part that is counted or timed as a whole.
    fn add(&mut self, part: Part) {
        self.counts.add(part);
        self.paths |= part == Part::TimedPaths;
    }
}

impl Pointed {
    /// Adds what is asked for inside the function. `name` is its name in reports.
    fn ask(&mut self, asked: &Asked, inside: Result<&Inside, &inside::Refusal>, name: &str) {
        let (image, function) = (&self.image, &self.function);
        if asked.counts != Wanted::default() {
            let of = (name.to_owned(), asked.counts);
            self.counted = Some(Counted::of(image, function, inside, of, None));
        }
        if let (false, Ok(inside)) = (asked.loops.is_empty(), inside) {
            let loops = spans(image, function, inside, (name, &asked.loops));
            self.points.extend(loops);
        }
        if asked.paths {
            let mut paths = paths(image, function, inside, name);
            let mut others = self.points.iter();
            paths.is_beside_others = others.any(|p| p.is_timed() && p.refused.is_none());
            let counts = self.counted.as_ref().map(|counted| &counted.inside);
            paths.number_counters_after(counts);
            self.points.push(paths);
        }
    }
}

impl Selection {
    fn find_points(&mut self, modules: &[Module], spots: &[Spot]) {
        let mut found: BTreeMap<(usize, Svma), Pointed> = BTreeMap::new();
        let mut asked: BTreeMap<(usize, Svma), Asked> = BTreeMap::new();
        let (of_copies, spots): (Vec<&Spot>, Vec<&Spot>) =
            spots.iter().partition(|spot| spot.is_of_copies());
        for spot in spots {
            let places = places(modules, spot);
            if places.is_empty() {
                self.unreadable.extend(unreadable(modules, spot));
                self.unmatched.push(unmatched(modules, spot));
            }
            for (index, image, bias, function, at) in places {
                let key = (index, function.range.start);
                let module = &modules[index];
                let name = name(&function, at, module);
                let pointed = found.entry(key).or_insert_with(|| {
                    Pointed::none_in((index, image, bias), function, self.allowed)
                });
                if let Some(part) = spot.part().filter(|part| part.is_whole()) {
                    asked.entry(key).or_default().add(part);
                    continue;
                }
                if spot.part().is_some_and(Part::is_timed) {
                    asked.entry(key).or_default().loops.insert(at);
                } else if pointed.points.iter().all(|p| p.at != at) {
                    pointed.points.push(Point::new(at, name));
                }
            }
        }
        let mut calls: BTreeMap<usize, NeverReturning> = BTreeMap::new();
        for (key, asked) in asked {
            if let Some(pointed) = found.get_mut(&key) {
                let Pointed {
                    image, function, ..
                } = &*pointed;
                let name = display_name(function, &modules[key.0].shown_name());
                let inside = inside(image, function, calls.entry(key.0).or_default());
                pointed.ask(&asked, inside.as_ref(), &name);
            }
        }
        self.find_copies(modules, &of_copies, &mut found, &mut calls);
        self.points = found.into_values().collect();
        for pointed in &mut self.points {
            pointed.look(&modules[pointed.module]);
        }
    }
}

/// `FUNC+0xOFFSET`. Relative to the module if the function has no name or begins after the address.
fn name(function: &Function, at: Svma, module: &Module) -> String {
    let offset = at.0.checked_sub(function.range.start.0);
    match offset.filter(|_| !function.linkage.is_empty()) {
        Some(offset) => format!(
            "{}+{offset:#x}",
            display_name(function, &module.shown_name())
        ),
        None => format!("{}+{at}", module.shown_name()),
    }
}

impl Candidate {
    /// Plans it with its points and counters, with breakpoints if permitted.
    pub(super) fn plan_inside(&mut self) {
        let FunctionPlan {
            function,
            want,
            allowed,
            ..
        } = &self.plan;
        let inside = (&self.points[..], self.counted.as_ref());
        self.plan = plan_with(&self.image, function, *want, inside, *allowed);
        self.try_traps();
    }

    /// Drops all counters if the plan refuses one, and returns the reason.
    pub(super) fn drop_counters(&mut self) -> Option<RefuseReason> {
        let hooks = self.points.iter().map(Point::hook_count).sum();
        let mut counters = self.plan.points.iter().skip(hooks);
        let refused = counters.find_map(|counter| counter.outcome.err())?;
        self.counted = None;
        self.plan_inside();
        Some(refused)
    }

    /// Removes the points and spans that its plan refuses, and returns them. Plans the others
    /// again.
    fn drop_refused(&mut self) -> Vec<(Point, RefuseReason)> {
        let mut refused = Vec::new();
        loop {
            let plans = self.planned_points().map(|(_, plans)| plans);
            let reasons = plans.map(|own| own.iter().find_map(|plan| plan.outcome.err()));
            let reasons: Vec<Option<RefuseReason>> = reasons.collect();
            if reasons.iter().all(Option::is_none) {
                return refused;
            }
            let mut kept = Vec::new();
            for (point, reason) in self.points.drain(..).zip(reasons) {
                match reason {
                    None => kept.push(point),
                    Some(reason) => refused.push((point, reason)),
                }
            }
            self.points = kept;
            self.plan_inside();
        }
    }
}

/// Makes candidates carry these points, adding carriers where needed. Returns the ids of points
/// that were in the session before and are out.
pub(super) fn join_points(
    document: &mut Document,
    modules: &[Module],
    candidates: &mut Vec<Candidate>,
    points: Vec<Pointed>,
    changed: &mut Changed,
) -> Vec<usize> {
    let mut known = Vec::new();
    for mut pointed in points {
        let module = &modules[pointed.module];
        let place = (pointed.bias, pointed.function.range.start);
        for point in std::mem::take(&mut pointed.points) {
            let known_id = known_point(document, pointed.bias, &point);
            let is_in = known_id.is_some_and(|id| document.functions[id].is_in());
            if !is_in && (point.is_beside_others || times_others(document, place, &point)) {
                let why = Refusal::Inside(OTHER_SPANS.to_owned());
                refuse_point(document, module, &pointed, &point, why, changed);
                continue;
            }
            let Some(id) = known_id else {
                match point.refused.clone() {
                    Some(why) => refuse_point(document, module, &pointed, &point, why, changed),
                    None => pointed.points.push(point),
                }
                continue;
            };
            if point.asks_metrics && document.functions[id].schema != point.schema {
                let what = point.kind();
                let why = format!("the metrics of {what} do not change in a session");
                changed.unchanged.push((point.name, Refusal::Inside(why)));
                continue;
            }
            let names = if is_in {
                &mut changed.already
            } else {
                known.push(id);
                &mut changed.functions
            };
            names.push(point.name);
        }
        if let Some(counted) = pointed.counted.take() {
            let place = (pointed.bias, pointed.function.range.start);
            let is_same = |id: &usize| Wanted::of(&document.functions[*id]) == counted.wanted;
            match known_edges(document, place).filter(is_same) {
                Some(id) if document.functions[id].is_in() => changed.already.push(counted.title()),
                Some(id) if !document.is_homeless(id) => {
                    known.push(id);
                    changed.functions.push(counted.title());
                }
                _ => match counted.refused.clone() {
                    Some(why) => refuse_edges(document, module, &pointed, counted, why, changed),
                    None => pointed.counted = Some(counted),
                },
            }
        }
        if pointed.points.is_empty() && pointed.counted.is_none() {
            continue;
        }
        let (refused, edges) = carry_points(document, candidates, &pointed);
        for (point, reason) in refused {
            refuse_point(document, module, &pointed, &point, reason.into(), changed);
        }
        if let (Some(reason), Some(counted)) = (edges, pointed.counted.take()) {
            refuse_edges(document, module, &pointed, counted, reason, changed);
        }
    }
    known
}

/// Makes a candidate for the same function carry the points and counters, or adds a carrier.
/// Returns the refused points, and the reason if the edges are refused.
fn carry_points(
    document: &Document,
    candidates: &mut Vec<Candidate>,
    pointed: &Pointed,
) -> (Vec<(Point, RefuseReason)>, Option<Refusal>) {
    match with_edges(document, candidates, pointed) {
        Some(Ok(candidate)) => {
            candidates.push(candidate);
            return (Vec::new(), None);
        }
        Some(Err(reason)) => return (Vec::new(), Some(reason)),
        None => {}
    }
    let place = (pointed.bias, pointed.function.range.start);
    let with = candidates.iter().position(|c| {
        let is_same = c.role.is_measured() && c.place() == place;
        is_same && row_of(document, c).is_none() && c.refused().is_none()
    });
    if let Some(with) = with {
        let candidate = &mut candidates[with];
        let alone = candidate.plan.clone();
        candidate.points = pointed.points.clone();
        candidate.counted = pointed.counted.clone();
        candidate.plan_inside();
        let edges = candidate.drop_counters();
        let refused = candidate.drop_refused();
        if candidate.plan.refused().is_none() {
            return (refused, edges.map(Refusal::from));
        }
        candidate.plan = alone;
        candidate.points = Vec::new();
        candidate.counted = None;
    }
    let mut candidate = pointed.carrier();
    candidate.try_traps();
    let edges = candidate.drop_counters();
    let refused = candidate.drop_refused();
    if candidate.is_carrier() {
        candidates.push(candidate);
    }
    (refused, edges.map(Refusal::from))
}

/// Records in the document and in `changed` that the edges of a function are refused.
fn refuse_edges(
    document: &mut Document,
    module: &Module,
    pointed: &Pointed,
    counted: Counted,
    why: Refusal,
    changed: &mut Changed,
) {
    let module = id_of_module(document, module, &pointed.image, pointed.bias);
    let refused = RefusedDoc {
        name: counted.name.clone(),
        module,
        address: pointed.function.range.start,
        reason: why.to_string(),
        role: Role::Edges,
    };
    add_refused(document, refused);
    changed.refused.push((counted.name, why));
}

/// Records in the document and in `changed` that a point is refused.
fn refuse_point(
    document: &mut Document,
    module: &Module,
    pointed: &Pointed,
    point: &Point,
    reason: Refusal,
    changed: &mut Changed,
) {
    changed.refused.push((point.name.clone(), reason.clone()));
    let module = id_of_module(document, module, &pointed.image, pointed.bias);
    add_refused(
        document,
        RefusedDoc {
            name: point.name.clone(),
            module,
            address: point.at,
            reason: reason.to_string(),
            role: point.role(),
        },
    );
}

/// True if paths of the function at this place are timed and the point is another span, or the
/// reverse.
fn times_others(document: &Document, place: FunctionPlace, point: &Point) -> bool {
    let is_here = |carrier: usize| document.place_of(&document.functions[carrier]) == Some(place);
    let mut rows = document.functions.iter();
    point.is_timed()
        && rows.any(|f| {
            let is_other = f.has_timed_paths() != point.paths.is_some();
            f.role == Role::Span && f.is_in() && is_other && f.carried_by.is_some_and(is_here)
        })
}

/// The id of the session's row for this point or span. `None` if there is none.
fn known_point(document: &Document, bias: Bias, point: &Point) -> Option<usize> {
    let copy = |of: &Option<Box<CopyDoc>>| of.as_ref().map(|copy| copy.entry);
    let is_it = |f: &FunctionDoc| {
        f.role == point.role()
            && copy(&f.copy) == copy(&point.copy)
            && f.has_timed_paths() == point.paths.is_some()
            && document.place_of(f) == Some((bias, point.at))
    };
    document.functions.iter().position(is_it)
}

/// The id of the session's row for the edges of the function at this place. `None` if there is
/// none.
fn known_edges(document: &Document, place: FunctionPlace) -> Option<usize> {
    let is_it = |f: &FunctionDoc| {
        f.role == Role::Edges && !f.is_retired() && document.place_of(f) == Some(place)
    };
    document.functions.iter().position(is_it)
}

/// The ids of those carriers of the functions and points `ids` that are out.
pub(super) fn carriers_of(document: &Document, ids: &[usize]) -> BTreeSet<usize> {
    let functions = &document.functions;
    let carriers = ids.iter().filter_map(|&id| functions[id].carried_by);
    carriers.filter(|&id| !functions[id].is_in()).collect()
}

/// Ids of the carriers that are in, and whose functions and points are all out once `leaving` is
/// out.
pub(super) fn idle_carriers(document: &Document, leaving: &[usize]) -> Vec<usize> {
    let functions = document.functions.iter().enumerate();
    let staying = functions
        .clone()
        .filter(|(id, f)| f.is_in() && !leaving.contains(id));
    let needed: BTreeSet<usize> = staying.filter_map(|(_, f)| f.carried_by).collect();
    let carriers = functions.filter(|(_, f)| f.is_in() && f.role == Role::Carrier);
    let ids = carriers.map(|(id, _)| id);
    ids.filter(|id| !needed.contains(id)).collect()
}

/// Adds notes to the profile: points have no times, and copies may have other executions.
pub(super) fn note_points(document: &mut Document) {
    let has_points = document.functions.iter().any(|f| f.role.is_point());
    let has_times = document.metrics.len() > 1;
    let has_copies = document.functions.iter().any(|f| f.copy.is_some());
    let notes = &mut document.notes;
    if has_points && has_times && notes.iter().all(|note| note != NOTE) {
        notes.push(NOTE.to_owned());
    }
    if has_copies && notes.iter().all(|note| note != NOTE_ON_COPIES) {
        notes.push(NOTE_ON_COPIES.to_owned());
    }
}

impl Pointed {
    /// A candidate for these points alone.
    pub(super) fn carrier(&self) -> Candidate {
        let name = self.function.name();
        let mut carrier = Candidate::new(self.origin(), Role::Carrier, name, self.plan());
        carrier.traps = self.traps;
        carrier.points = self.points.clone();
        carrier.counted = self.counted.clone();
        carrier
    }
}

impl Document {
    /// Returns `ids` and the functions and points that are in and carried by one of them.
    pub fn with_carried(&self, ids: &[usize]) -> Vec<usize> {
        let is_carried =
            |f: &FunctionDoc| f.is_in() && f.carried_by.is_some_and(|c| ids.contains(&c));
        let functions = self.functions.iter().enumerate();
        let carried = functions.filter(|(id, f)| is_carried(f) && !ids.contains(id));
        let carried = carried.map(|(id, _)| id);
        ids.iter().copied().chain(carried).collect()
    }
}

impl Session {
    /// The ids of the session's points and spans at `spots`, including those that are out.
    ///
    /// # Errors
    /// The process cannot be read, has ended or has executed another program.
    pub fn points_at(&self, spots: &[Spot]) -> Result<Vec<usize>, SessionError> {
        let space = Space::open(&self.process)?;
        let modules = modules(&self.process, &space.maps()?);
        let places_of = |is_meant: &dyn Fn(Option<Part>) -> bool| {
            let spots = spots
                .iter()
                .filter(|spot| is_meant(spot.part()) && !spot.is_of_copies());
            let places = spots.flat_map(|spot| places(&modules, spot));
            let places = places.map(|(_, _, bias, _, at)| (bias, at));
            places.collect::<BTreeSet<FunctionPlace>>()
        };
        let points = places_of(&|part| !part.is_some_and(|p| p.is_whole() || p.is_timed()));
        let spans = places_of(&|part| part.is_some_and(Part::is_timed));
        let timed_paths = places_of(&|part| part == Some(Part::TimedPaths));
        let functions = self.document.functions.iter().enumerate();
        let edges = places_of(&|part| part == Some(Part::Edges));
        let paths = places_of(&|part| part == Some(Part::Paths));
        let trips = places_of(&|part| part == Some(Part::Trips));
        let points = functions.filter(|(_, f)| {
            let place = self.document.place_of(f);
            let is_in = |places: &BTreeSet<FunctionPlace>| {
                place.is_some_and(|place| places.contains(&place))
            };
            let own = Wanted::of(f);
            match f.role {
                Role::Point => is_in(&points),
                Role::Span if f.copy.is_some() => is_named_copy(&self.document, &modules, spots, f),
                Role::Span if f.has_timed_paths() => is_in(&timed_paths),
                Role::Span => is_in(&spans),
                Role::Edges if own.edges && is_in(&edges) => true,
                Role::Edges => own.paths && is_in(&paths) || own.trips && is_in(&trips),
                _ => false,
            }
        });
        let ids: Vec<usize> = points.map(|(id, _)| id).collect();
        if ids.is_empty() {
            space.check()?;
        }
        Ok(ids)
    }
}
