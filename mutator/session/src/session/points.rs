//! Points: instructions whose passes are counted, each by itself. What has their hooks, and those of their function where
//! that is measured from the same moment on, is a *carrier*: a row of the document with sites alone. It is in as long as one of
//! those is.

use std::collections::{BTreeMap, BTreeSet};

use patcher::function::Function;
use patcher::plan::RefuseReason;
use patcher::select::{Pattern, Spot};
use patcher::{Bias, Svma};

use super::candidate::{Candidate, FunctionPlace, Point, display_name};
use super::pointed::{Pointed, plan_with};
use super::refusing::{add_refused, id_of_module};
use super::rows::row_of;
use super::select::is_meant;
use super::unmatched::{Unmatched, near};
use super::{Changed, Selected, Selection, Session, SessionError};
use crate::segment::{Document, FunctionDoc, RefusedDoc, Role};
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::values::Item;
use ipath_target::process::Space;
use ipath_target::process::modules::{Module, modules};

/// What the profile says of them where times are measured.
const NOTE: &str = "points (FUNC+0xOFFSET) are counted, and nothing else is measured at them";

impl Selected {
    /// Looks the places up in the modules, and whether there can be points.
    pub fn find_points(&mut self, spots: &[Spot]) {
        self.selection.find_points(&self.modules, spots);
    }

    /// Completes what patterns have found: the points at these places, breakpoints where they are allowed, and where these
    /// values of each function are.
    pub fn complete(&mut self, spots: &[Spot], allows_traps: bool, items: &[Item]) {
        self.find_points(spots);
        if allows_traps {
            self.selection.allow_traps();
        }
        self.find_values(items);
    }
}

impl Selection {
    fn find_points(&mut self, modules: &[Module], spots: &[Spot]) {
        let mut found: BTreeMap<(usize, Svma), Pointed> = BTreeMap::new();
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
                let pointed = found.entry(key).or_insert_with(|| Pointed {
                    module: index,
                    image,
                    bias,
                    function,
                    points: Vec::new(),
                    allowed: self.allowed,
                    traps: false,
                });
                if pointed.points.iter().all(|p| p.at != at) {
                    pointed.points.push(Point {
                        at,
                        name,
                        standing: 0,
                        refused: None,
                        no_room: None,
                    });
                }
            }
        }
        self.points = found.into_values().collect();
        for pointed in &mut self.points {
            pointed.look(&modules[pointed.module]);
        }
    }
}

type Found = (usize, &'static OpenImage, Bias, Function, Svma);

/// Where a place is: in functions of that name, or else at that address.
fn places(modules: &[Module], spot: &Spot) -> Vec<Found> {
    let opened = modules.iter().enumerate().filter_map(|(index, module)| {
        let image = images::of_module(module).ok()?;
        Some((index, module, image, module.bias(image.image)?))
    });
    let opened: Vec<_> = opened.collect();
    let mut found = Vec::new();
    for &(index, module, image, bias) in &opened {
        let named = spot.in_functions(image.image, module.file_name());
        let named = named.into_iter();
        let there = named.filter(|(function, _)| module.maps_function(bias, function));
        found.extend(there.map(|(function, at)| (index, image, bias, function, at)));
    }
    let address = spot.address().filter(|_| found.is_empty());
    for &(index, module, image, bias) in opened.iter().filter(|_| address.is_some()) {
        let Some(address) = address.filter(|a| is_meant(a, module.file_name(), Some(module)))
        else {
            continue;
        };
        let Some(at) = spot.address_in(bias) else {
            continue;
        };
        let functions = image.select(address, module.file_name(), bias).into_iter();
        let there = functions.filter(|function| module.maps_function(bias, function));
        found.extend(there.map(|function| (index, image, bias, function, at)));
    }
    found
}

/// The modules that a place may be in and that cannot be read, with the reason.
fn unreadable(modules: &[Module], spot: &Spot) -> Vec<(String, String)> {
    let pattern = spot.address().or(spot.function());
    let is_it = |m: &&Module| pattern.is_some_and(|p| is_meant(p, m.file_name(), Some(m)));
    let unread = |m: &Module| Some((m.path.clone(), images::of_module(m).err()?.to_string()));
    modules.iter().filter(is_it).filter_map(unread).collect()
}

fn unmatched(modules: &[Module], spot: &Spot) -> Unmatched {
    let images = modules.iter().filter_map(|m| images::of_module(m).ok());
    let is_in_module = spot.address().is_some_and(Pattern::has_module);
    // What counts from a module's start names no function.
    let near = spot
        .function()
        .filter(|_| !is_in_module)
        .map(|pattern| near(pattern, modules, images));
    Unmatched {
        pattern: spot.text().to_owned(),
        near: near.unwrap_or_default(),
        inlined: 0,
        jit: None,
        is_in_unbounded_code: false,
        why: None,
        modules: None,
        may_come: false,
    }
}

/// `FUNC+0xOFFSET`; by the module where the function has no name, or begins after it.
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
    /// Takes those points out of its plan that are refused in it.
    fn drop_refused(&mut self) -> Vec<(Point, RefuseReason)> {
        let mut kept = Vec::new();
        let mut refused = Vec::new();
        let mut numbers = BTreeMap::new();
        let plans = std::mem::take(&mut self.plan.points);
        for ((number, point), plan) in (0u32..).zip(self.points.drain(..)).zip(plans) {
            match plan.outcome {
                Ok(_) => {
                    numbers.insert(number, kept.len() as u32);
                    self.plan.points.push(plan);
                    kept.push(point);
                }
                Err(reason) => refused.push((point, reason)),
            }
        }
        self.points = kept;
        self.plan
            .number_points(|number| numbers.get(&number).copied().unwrap_or(number));
        refused
    }
}

/// Has the candidates carry these points, or adds some that do; the ids of those that have been in the session before
/// and are out.
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
        for point in std::mem::take(&mut pointed.points) {
            if let Some(reason) = point.refused {
                refuse_point(document, module, &pointed, &point, reason, changed);
                continue;
            }
            let Some(id) = known_point(document, (pointed.bias, point.at)) else {
                pointed.points.push(point);
                continue;
            };
            let names = if document.functions[id].is_in() {
                &mut changed.already
            } else {
                known.push(id);
                &mut changed.functions
            };
            names.push(point.name);
        }
        if pointed.points.is_empty() {
            continue;
        }
        let refused = carry_points(document, candidates, &pointed);
        for (point, reason) in refused {
            refuse_point(document, module, &pointed, &point, reason, changed);
        }
    }
    known
}

/// Has a candidate for the same function carry the points, or one of their own; those that are refused.
fn carry_points(
    document: &Document,
    candidates: &mut Vec<Candidate>,
    pointed: &Pointed,
) -> Vec<(Point, RefuseReason)> {
    let place = (pointed.bias, pointed.function.range.start);
    let with = candidates.iter().position(|c| {
        let is_same = c.role.is_measured() && c.place() == place;
        is_same && row_of(document, c).is_none() && c.refused().is_none()
    });
    if let Some(with) = with {
        let candidate = &mut candidates[with];
        let alone = candidate.plan.clone();
        let (want, allowed) = (alone.want, alone.allowed);
        candidate.plan = plan_with(
            candidate.image,
            &alone.function,
            want,
            &pointed.points,
            allowed,
        );
        candidate.points = pointed.points.clone();
        candidate.try_traps();
        let refused = candidate.drop_refused();
        if candidate.plan.refused().is_none() {
            return refused;
        }
        candidate.plan = alone;
        candidate.points = Vec::new();
    }
    let mut candidate = pointed.carrier();
    candidate.try_traps();
    let refused = candidate.drop_refused();
    if !candidate.points.is_empty() {
        candidates.push(candidate);
    }
    refused
}

fn refuse_point(
    document: &mut Document,
    module: &Module,
    pointed: &Pointed,
    point: &Point,
    reason: RefuseReason,
    changed: &mut Changed,
) {
    let refused = (point.name.clone(), reason.into());
    changed.refused.push(refused);
    let module = id_of_module(document, module, pointed.image, pointed.bias);
    add_refused(
        document,
        RefusedDoc {
            name: point.name.clone(),
            module,
            address: point.at,
            reason: reason.to_string(),
            role: Role::Point,
        },
    );
}

fn known_point(document: &Document, place: FunctionPlace) -> Option<usize> {
    let is_it = |f: &FunctionDoc| f.role.is_point() && document.place_of(f) == Some(place);
    document.functions.iter().position(is_it)
}

/// The carriers of these functions and points that are out.
pub(super) fn carriers_of(document: &Document, ids: &[usize]) -> BTreeSet<usize> {
    let functions = &document.functions;
    let carriers = ids.iter().filter_map(|&id| functions[id].carried_by);
    carriers.filter(|&id| !functions[id].is_in()).collect()
}

/// Carriers of nothing that stays in once `leaving` is out.
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

/// Says in the profile that points have no times.
pub(super) fn note_points(document: &mut Document) {
    let has_points = document.functions.iter().any(|f| f.role.is_point());
    let has_times = document.metrics.len() > 1;
    let notes = &mut document.notes;
    if has_points && has_times && notes.iter().all(|note| note != NOTE) {
        notes.push(NOTE.to_owned());
    }
}

impl Pointed {
    /// A candidate for these points alone.
    fn carrier(&self) -> Candidate {
        let name = self.function.name();
        let mut carrier = Candidate::new(self.origin(), Role::Carrier, name, self.plan());
        carrier.traps = self.traps;
        carrier.points = self.points.clone();
        carrier
    }
}

impl Document {
    /// These, with the functions and points that are in and are carried by some of them.
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
    /// Ids of the points of the session that a place names.
    pub fn points_at(&self, spots: &[Spot]) -> Result<Vec<usize>, SessionError> {
        let space = Space::open(&self.process)?;
        let modules = modules(&self.process, &space.maps()?);
        let places = spots.iter().flat_map(|spot| places(&modules, spot));
        let places: BTreeSet<FunctionPlace> =
            places.map(|(_, _, bias, _, at)| (bias, at)).collect();
        let functions = self.document.functions.iter().enumerate();
        let points = functions.filter(|(_, f)| {
            let place = self.document.place_of(f);
            f.role.is_point() && place.is_some_and(|place| places.contains(&place))
        });
        let ids: Vec<usize> = points.map(|(id, _)| id).collect();
        if ids.is_empty() {
            space.check()?;
        }
        Ok(ids)
    }
}
