//! New patches for a function that has patches already, when its edges are to be counted beside its
//! calls.
//!
//! A function has one set of patches at a time. Its rows keep their ids and their counts. Their
//! present sites are given up, and a new carrier holds the hooks of all of them. A retired carrier
//! keeps the old sites, because threads may still be in their trampolines.

use std::sync::Arc;

use patcher::function::Function;
use patcher::inside::{Inside, NeverReturning};
use patcher::plan::{Allowed, Effects};

use super::candidate::{Candidate, FunctionPlace, Origin, Relaid};
use super::claims::Claims;
use super::counted::{Counted, Wanted};
use super::pointed::{Pointed, plan_with};
use super::refusal::Refusal;
use crate::segment::{Document, FunctionDoc, Role, State};
use ipath_symbols::images;
use ipath_target::process::modules::Module;

/// The rows of one function.
struct Rows {
    function: Option<usize>,
    edges: Option<usize>,
    /// Ids of the rows with sites.
    with_sites: Vec<usize>,
    are_in: Vec<usize>,
}

impl Rows {
    /// The rows of the function at this place. `None` if it has points, which share its patches.
    fn of(document: &Document, place: FunctionPlace) -> Option<Self> {
        let functions = document.functions.iter().enumerate();
        let here = functions.filter(|(_, f)| {
            let has_a_part = matches!(f.role, Role::Measured | Role::Edges | Role::Carrier);
            has_a_part && !f.is_retired() && document.place_of(f) == Some(place)
        });
        let here: Vec<(usize, &FunctionDoc)> = here.collect();
        let of_role = |role| here.iter().find(|(_, f)| f.role == role).map(|(id, _)| *id);
        let with_sites = here.iter().filter(|(_, f)| !f.sites.is_empty());
        let rows = Self {
            function: of_role(Role::Measured),
            edges: of_role(Role::Edges),
            with_sites: with_sites.map(|(id, _)| *id).collect(),
            are_in: here
                .iter()
                .filter(|(_, f)| f.is_in())
                .map(|(id, _)| *id)
                .collect(),
        };
        let mut points = document.functions.iter();
        let is_here = |f: &FunctionDoc| {
            let is_inside = matches!(f.role, Role::Point | Role::Span);
            is_inside && f.carried_by.is_some_and(|c| rows.with_sites.contains(&c))
        };
        (!points.any(is_here)).then_some(rows)
    }

    fn is_in(&self, id: Option<usize>) -> bool {
        id.is_some_and(|id| self.are_in.contains(&id))
    }

    /// What a candidate has to say about its rows if it measures the function, counts the edges, or
    /// both.
    fn relaid(self, measures: bool, counts: bool) -> Relaid {
        Relaid {
            function: self.function.filter(|_| measures),
            edges: self.edges.filter(|_| counts),
            are_in: self.are_in,
            given_up: self.with_sites,
        }
    }
}

impl Document {
    /// True if the row's sites have been given up. It has to be laid out anew to come in.
    pub(super) fn is_homeless(&self, id: usize) -> bool {
        let carrier = self.functions[id].carried_by;
        carrier.is_some_and(|carrier| self.functions[carrier].is_retired())
    }

    /// Moves the sites of these rows, which are out, to retired carriers.
    pub(super) fn give_up_sites(&mut self, ids: &[usize]) {
        for &id in ids {
            if self.functions[id].role == Role::Carrier {
                self.functions[id].state = State::Retired;
                continue;
            }
            let carrier = self.functions.len();
            let function = &mut self.functions[id];
            let sites = std::mem::take(&mut function.sites);
            let old = FunctionDoc {
                role: Role::Carrier,
                state: State::Retired,
                exits: Vec::new(),
                lends: Vec::new(),
                ends: false,
                children: None,
                generation: 0,
                sites,
                ..function.clone()
            };
            function.carried_by = Some(carrier);
            function.first_sites = 0;
            self.functions.push(old);
        }
    }

    /// Undoes [`Self::give_up_sites`] for the rows of a candidate that was refused afterwards.
    /// Returns the ids to put in again.
    pub(super) fn take_back_sites(&mut self, relaid: &Relaid) -> Vec<usize> {
        let carriers = |id: &usize| self.functions[*id].carried_by;
        let mut ids = relaid.are_in.clone();
        ids.extend(relaid.are_in.iter().filter_map(carriers));
        ids.sort_unstable();
        ids.dedup();
        for &id in &ids {
            self.functions[id].state = State::Out;
        }
        ids
    }
}

/// The rows of a candidate that counts the same in the function of row `id` with other hooks.
/// `None` if anything else is measured there.
pub(super) fn rows_alone(document: &Document, id: usize) -> Option<Relaid> {
    let row = &document.functions[id];
    let rows = Rows::of(document, document.place_of(row)?)?;
    let own: Vec<usize> = row.carried_by.into_iter().chain([id]).collect();
    let is_alone = rows.edges == Some(id) && rows.are_in.iter().all(|id| own.contains(id));
    is_alone.then(|| rows.relaid(false, true))
}

/// The candidate that counts the edges of `pointed` and keeps what else is measured in the
/// function. The error is the reason if the edges are refused. `None` if the function needs no new
/// patches, or if it cannot have them because it has points.
pub(super) fn with_edges(
    document: &Document,
    candidates: &mut Vec<Candidate>,
    pointed: &Pointed,
) -> Option<Result<Candidate, Refusal>> {
    let counted = pointed.counted.as_ref()?;
    let place = (pointed.bias, pointed.function.range.start);
    let rows = Rows::of(document, place).filter(|_| pointed.points.is_empty())?;
    let is_free = |c: &Candidate| Claims::of(document).in_the_way_of(c).is_empty();
    if rows.edges.is_none() && (rows.with_sites.is_empty() || is_free(&pointed.carrier())) {
        return None;
    }
    let is_other = |id: usize| Wanted::of(&document.functions[id]) != counted.wanted;
    if let Some(id) = rows.edges.filter(|&id| is_other(id)) {
        let known = document.functions[id].title();
        let why = format!("this session has counted {known}, and counts one kind in a function");
        return Some(Err(Refusal::Inside(why)));
    }
    let asked = candidates.iter().position(|c| {
        c.role.is_measured() && c.place() == place && c.refused().is_none() && c.exits_of.is_none()
    });
    let is_in = rows.is_in(rows.function);
    let mut own = None;
    let mut candidate = match (asked, rows.function) {
        // Its metrics change in the same command, by other steps.
        (Some(at), Some(id)) if is_in && candidates[at].schema != document.functions[id].schema => {
            return None;
        }
        (Some(at), _) if !is_in => {
            let candidate = candidates.remove(at);
            own = Some(candidate.plan.clone());
            candidate
        }
        (_, Some(id)) if is_in => {
            let row = &document.functions[id];
            let function = pointed.function.clone();
            Candidate::of_row(row, pointed.origin(), function, pointed.allowed)
        }
        _ => pointed.carrier(),
    };
    candidate.traps |= pointed.traps;
    candidate.counted = Some(counted.clone());
    candidate.plan_inside();
    let refused = candidate.drop_counters();
    if let Some(reason) = refused.or_else(|| candidate.plan.refused().map(|(_, reason)| reason)) {
        // The function itself was asked for, too.
        candidates.extend(own.map(|plan| Candidate {
            plan,
            counted: None,
            ..candidate
        }));
        return Some(Err(reason.into()));
    }
    candidate.relaid = Some(rows.relaid(candidate.role.is_measured(), true));
    Some(Ok(candidate))
}

/// Makes candidates for functions whose edges are counted, or were counted, lay out both.
pub(super) fn with_calls(document: &Document, candidates: &mut [Candidate]) {
    if document.functions.iter().all(|f| f.role != Role::Carrier) {
        return;
    }
    let mut calls = NeverReturning::default();
    let new = candidates
        .iter_mut()
        .filter(|c| c.role.is_measured() && !c.is_carrier());
    for candidate in new.filter(|c| c.exits_of.is_none() && c.relaid.is_none()) {
        let Some(rows) = Rows::of(document, candidate.place()) else {
            continue;
        };
        let is_obstructed = || {
            let owners = Claims::of(document).in_the_way_of(candidate);
            owners.contains(&candidate.place())
        };
        let is_meant = match rows.function {
            Some(id) => document.is_homeless(id),
            None => is_obstructed(),
        };
        if candidate.refused().is_some() || !is_meant {
            continue;
        }
        let counted = rows.edges.filter(|_| rows.is_in(rows.edges));
        if let Some(edges) = counted {
            let wanted = Wanted::of(&document.functions[edges]);
            let (image, function) = (&candidate.image, &candidate.plan.function);
            let inside = Inside::of(image.image(), image.context(), function, &mut calls);
            let counted = Counted::of(
                image,
                function,
                inside.as_ref(),
                (candidate.name.clone(), wanted),
                None,
            );
            let alone = candidate.plan.clone();
            candidate.counted = Some(counted);
            candidate.plan_inside();
            if candidate.drop_counters().is_some() || candidate.plan.refused().is_some() {
                candidate.counted = None;
                candidate.plan = alone;
                continue;
            }
        }
        candidate.relaid = Some(rows.relaid(true, counted.is_some()));
    }
}

/// The candidates that restore the patches of functions whose edges are no longer counted and whose
/// calls still are. `ids` are the rows that have been removed. `found` finds the function of a row.
pub(super) fn without_edges(
    document: &Document,
    ids: &[usize],
    allowed: Allowed,
    found: impl Fn(&FunctionDoc) -> Option<(Origin, Function)>,
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for &id in ids {
        let edges = &document.functions[id];
        let Some(place) = document.place_of(edges) else {
            continue;
        };
        let is_carried = edges
            .carried_by
            .is_some_and(|c| document.functions[c].is_in());
        let rows = Rows::of(document, place).filter(|_| edges.role == Role::Edges && is_carried);
        let Some(rows) = rows.filter(|rows| rows.is_in(rows.function)) else {
            continue;
        };
        let row = rows.function.map(|id| &document.functions[id]);
        let Some((row, (origin, function))) = row.and_then(|row| Some((row, found(row)?))) else {
            continue;
        };
        let mut candidate = Candidate::of_row(row, origin, function, allowed);
        candidate.relaid = Some(rows.relaid(true, false));
        candidates.push(candidate);
    }
    candidates
}

/// The file and the function of a row. `None` if its file is not mapped any more.
pub(super) fn function_of(
    document: &Document,
    modules: &[Module],
    row: &FunctionDoc,
) -> Option<(Origin, Function)> {
    let doc = document.modules.get(row.module)?;
    let (bias, address) = document.place_of(row)?;
    let module = modules.iter().position(|m| m.path == doc.path)?;
    let image = images::of_module(&modules[module]).ok()?;
    let function = image.image().functions().function_at(address)?;
    let origin = Origin {
        module,
        image,
        bias,
    };
    Some((origin, function))
}

impl Candidate {
    /// A candidate for what a row of the session measures.
    fn of_row(row: &FunctionDoc, origin: Origin, function: Function, allowed: Allowed) -> Self {
        let want = Effects {
            entry: true,
            exits: row.has_exits(),
        };
        let image = Arc::clone(&origin.image);
        let plan = plan_with(&image, &function, want, (&[], None), allowed);
        let mut candidate = Self::new(origin, Role::Measured, row.name.clone(), plan);
        candidate.elsewhere.clones.clone_from(&row.clones);
        candidate.elsewhere.inlined = row.inlined;
        candidate.children = row.children;
        candidate.values = row.values;
        candidate.schema = row.schema;
        candidate
    }
}
