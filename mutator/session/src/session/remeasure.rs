//! Deciding what functions measure while they are in, before anything in the target changes. If
//! exits are needed that are not laid out yet, they are planned beside the entry that is in.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use patcher::plan::{Effects, RefuseReason};

use super::pointed::plan_with;
use super::rows::row_of;
use super::{Candidate, Changed, Refusal, Selection, Session, SessionError};
use crate::segment::{Document, FunctionDoc, MadeFor, Remeasure, Role, SchemaDoc, State};
use ipath_profile::clock;

/// The exits of a function without its entry.
const EXITS: Effects = Effects {
    entry: false,
    exits: true,
};

/// A change of the metrics of a function in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The function's id.
    pub(super) id: usize,
    /// The number of the function's new schema.
    pub(super) schema: u8,
    /// The locations of the function's old and new values, as one set.
    pub(super) values: u64,
    /// True if the function needs exits that are not laid out yet.
    pub(super) waits: bool,
}

impl Session {
    /// The limits and the time for new schemas.
    pub(super) fn made_for(&self) -> MadeFor {
        let header = self.segment.header();
        let hz = header.clock_hz.load(Relaxed).max(1);
        MadeFor {
            hz,
            room: header.columns.load(Relaxed) as usize,
            now_ns: Some(clock::ns_since_start(header, clock::tsc())),
        }
    }
}

/// The parts of a document that define measurements, kept for restoring them.
pub(super) struct Measures(Document);

/// Copies the current definitions of measurements.
pub(super) fn measures_of(document: &Document) -> Measures {
    Measures(Document {
        metrics: document.metrics.clone(),
        schemas: document.schemas.clone(),
        counters: document.counters.clone(),
        notes: document.notes.clone(),
        ..Document::default()
    })
}

/// Restores the definitions of measurements.
pub(super) fn put_back(document: &mut Document, Measures(before): Measures) {
    document.metrics = before.metrics;
    document.schemas = before.schemas;
    document.counters = before.counters;
    document.notes = before.notes;
}

/// Sets the schemas of the selected functions. Returns the changes for functions that the session
/// has. After an error, the document's measurements are as before.
pub(super) fn decide_turns(
    document: &mut Document,
    selection: &mut Selection,
    made: MadeFor,
) -> Result<Vec<Turn>, SessionError> {
    let before = measures_of(document);
    let decided = decide_all(document, selection, made);
    if decided.is_err() {
        put_back(document, before);
    }
    decided
}

/// Why paths cannot be measured without a metric. Their ends are not seen then.
const UNTIMED: &str = "its paths have no other metric than their counts; --paths counts them";

/// Like [`decide_turns`], but may leave unused measurements after an error.
fn decide_all(
    document: &mut Document,
    selection: &mut Selection,
    made: MadeFor,
) -> Result<Vec<Turn>, SessionError> {
    let mut of_new = document.schema;
    if let Some(change) = &selection.remeasure {
        check_quiet(document, change)?;
        let metrics = Remeasure::Set(change.metrics().to_vec());
        of_new = document.remeasure(of_new, &metrics, made)?;
    }
    let items = document.schema_of(of_new).map(SchemaDoc::items);
    let item = items.unwrap_or_default().into_iter().next();
    let points = selection.points.iter_mut().flat_map(|p| &mut p.points);
    for span in points.filter(|point| point.is_timed()) {
        span.schema = of_new;
        span.asks_metrics = selection.remeasure.is_some();
        let what = span.kind();
        let why = item.map(|item| Refusal::Value(format!("{what} has no value {item}")));
        let is_untimed = span.paths.is_some() && !document.needs_exits(of_new);
        let why = why.or(is_untimed.then(|| Refusal::Inside(UNTIMED.to_owned())));
        span.refused = span.refused.take().or(why);
    }
    let mut turns = Vec::new();
    let measured = selection.candidates.iter_mut();
    for candidate in measured.filter(|c| c.role.is_measured() && c.relaid.is_none()) {
        candidate.schema = of_new;
        if document.is_phase(candidate) {
            candidate.schema = document.with_value(of_new, 0)?;
            let items = document.schema_of(candidate.schema).map(SchemaDoc::items);
            let items = items.unwrap_or_default();
            if !candidate.unread.iter().any(|item| items.contains(item)) {
                candidate.unreadable = None;
            }
        }
        if let Some(by) = candidate.by.filter(|_| !document.is_phase(candidate)) {
            candidate.schema = document.with_value(of_new, by)?;
        }
        let Some(id) = row_of(document, candidate) else {
            continue;
        };
        let function = &document.functions[id];
        let (is_in, of, values) = (function.is_in(), function.schema, function.values);
        candidate.schema = match &selection.remeasure {
            Some(change) if is_in => document.remeasure(of, change, made)?,
            Some(_) => candidate.schema,
            None => of,
        };
        if candidate.schema != of && candidate.unreadable.is_none() {
            turns.push(Turn {
                id,
                schema: candidate.schema,
                values: values | candidate.values,
                waits: false,
            });
        }
    }
    Ok(turns)
}

/// Returns an error if the change needs system calls that the runtime must not make.
fn check_quiet(document: &Document, change: &Remeasure) -> Result<(), SessionError> {
    let mut metrics = change.metrics().iter();
    let asks = metrics.find(|metric| document.quiet && metric.needs_system_calls());
    match asks {
        Some(metric) => Err(SessionError::NeedsSystemCalls(metric.name())),
        None => Ok(()),
    }
}

/// Plans exits for functions that need them and have none laid out. A function that cannot have
/// exits is refused if it is in. If it is out, it is added as a new function instead.
pub(super) fn plan_exits(
    document: &mut Document,
    candidates: &mut Vec<Candidate>,
    turns: &mut Vec<Turn>,
    changed: &mut Changed,
) {
    let mut exits = Vec::new();
    let mut dropped = BTreeSet::new();
    for turn in turns.iter_mut() {
        let function = &document.functions[turn.id];
        if !document.needs_exits(turn.schema) || !function.exits.is_empty() {
            continue;
        }
        let known = candidates.iter().position(|c| {
            let is_it = || row_of(document, c) == Some(turn.id);
            c.role.is_measured() && is_it()
        });
        let Some(at) = known else {
            continue;
        };
        let candidate = candidates[at].exits(turn.id);
        let refused = match candidate.plan.refused() {
            Some((_, reason)) => Some(reason),
            None if overlaps_own(document, &candidate, turn.id) => {
                Some(RefuseReason::ExitsOverlapEntry)
            }
            None => None,
        };
        match refused {
            None => {
                turn.waits = !candidate.plan.exits.is_empty();
                exits.extend(turn.waits.then_some(candidate));
            }
            Some(_) if !function.is_in() => {
                document.functions[turn.id].state = State::Retired;
                dropped.insert(turn.id);
            }
            Some(reason) => {
                let refused = candidates.remove(at);
                changed.unchanged.push((refused.name, reason.into()));
                dropped.insert(turn.id);
            }
        }
    }
    turns.retain(|turn| !dropped.contains(&turn.id));
    candidates.extend(exits);
}

/// True if these exits need bytes that the function's own sites change or depend on.
fn overlaps_own(document: &Document, exits: &Candidate, id: usize) -> bool {
    let at = |range: &std::ops::Range<patcher::Svma>| {
        exits.bias.to_avma(range.start)..exits.bias.to_avma(range.end)
    };
    let sites = &document.functions[id].sites;
    sites.iter().any(|own| {
        let kept = own.kept.at..own.kept.at.plus(own.kept.bytes.len() as u64);
        let changed = [&own.window, &own.landing];
        let meets = |a: &std::ops::Range<patcher::Avma>, b: &std::ops::Range<patcher::Avma>| {
            !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
        };
        exits.plan.sites.iter().any(|site| {
            let new = [Some(at(&site.window)), site.landing.as_ref().map(at)];
            let depends = site.pun.as_ref().map(|pun| at(&pun.depends));
            let mut new = new.iter().flatten();
            new.any(|new| changed.iter().any(|own| meets(new, own)) || meets(new, &kept))
                || depends.is_some_and(|new| changed.iter().any(|own| meets(&new, own)))
        })
    })
}

/// Applies the changes of functions that come in now. Returns the other changes.
pub(super) fn come_in_changed(
    document: &mut Document,
    turns: Vec<Turn>,
    coming: &[usize],
) -> Vec<Turn> {
    let (coming, others): (Vec<Turn>, Vec<Turn>) = turns
        .into_iter()
        .partition(|turn| coming.contains(&turn.id));
    for turn in coming {
        note_turn(document, turn);
        let needs_exits = document.needs_exits(turn.schema);
        document.functions[turn.id].set_exits(needs_exits);
    }
    others
}

/// Records in the document what a function measures from now on.
pub(super) fn note_turn(document: &mut Document, turn: Turn) {
    // A function that a change has given metrics again is measured in full.
    let has_metrics = document.metrics_of(turn.schema).len() > 1;
    let function = &mut document.functions[turn.id];
    function.throttled.take_if(|_| has_metrics);
    function.schema = turn.schema;
    function.values = turn.values;
    function.remeasured = true;
}

/// Drops changes that need exits which could not be laid out.
pub(super) fn possible_turns(document: &Document, mut turns: Vec<Turn>) -> Vec<Turn> {
    let has_exits = |turn: &Turn| !document.functions[turn.id].exits.is_empty();
    turns.retain(|turn| !turn.waits || has_exits(turn));
    turns
}

/// True if the ends of calls matter to functions that are in or to these candidates.
pub(super) fn sees_ends(document: &Document, candidates: &[Candidate]) -> bool {
    let in_session = |f: &FunctionDoc| f.is_in() && f.role.is_shown() && f.has_exits();
    let measured = candidates.iter().filter(|c| c.role.is_measured());
    let mut to_come = measured.filter(|c| c.refused().is_none() && document.needs_exits(c.schema));
    let mut points = candidates.iter().flat_map(|c| &c.points);
    document.functions.iter().any(in_session)
        || to_come.next().is_some()
        || points.any(|point| document.needs_exits(point.schema))
}

impl Candidate {
    /// A candidate for the exits alone of the function that is in as `id`.
    fn exits(&self, id: usize) -> Self {
        let function = &self.plan.function;
        let plan = plan_with(&self.image, function, EXITS, (&[], None), self.plan.allowed);
        let mut exits = Self::new(self.origin(), Role::Measured, self.name.clone(), plan);
        exits.elsewhere = self.elsewhere.clone();
        exits.traps = self.traps;
        exits.values = self.values;
        exits.schema = self.schema;
        exits.exits_of = Some(id);
        exits.try_traps();
        exits
    }
}

/// Decides the changes of functions that no longer measure these metrics. The document gets the
/// schemas for it.
///
/// # Errors
/// One of the metrics is measured by none of the functions. The document stays unchanged.
pub(super) fn decide_taking(
    document: &mut Document,
    ids: &[usize],
    names: Vec<String>,
    made: MadeFor,
) -> Result<Vec<Turn>, SessionError> {
    let functions = &document.functions;
    let is_in = |id: &&usize| {
        let function = functions.get(**id);
        function.is_some_and(|f| f.is_in() && f.role.is_measured())
    };
    let ids: Vec<usize> = ids.iter().filter(is_in).copied().collect();
    let measures = |id: usize| document.measured_of(&functions[id]);
    for name in &names {
        if !ids.iter().any(|&id| measures(id).contains(&name.as_str())) {
            let of = ids.iter().map(|&id| {
                let measured = measures(id).into_iter().map(str::to_owned);
                (functions[id].name.clone(), measured.collect())
            });
            return Err(SessionError::NotMeasured(name.clone(), of.collect()));
        }
    }
    let before = measures_of(document);
    let mut turns = Vec::new();
    let change = Remeasure::Take(names);
    for id in ids {
        let FunctionDoc { schema, values, .. } = document.functions[id];
        match document.remeasure(schema, &change, made) {
            Ok(new) if new == schema => {}
            Ok(new) => turns.push(Turn {
                id,
                schema: new,
                values,
                waits: false,
            }),
            Err(error) => {
                put_back(document, before);
                return Err(error.into());
            }
        }
    }
    Ok(turns)
}
