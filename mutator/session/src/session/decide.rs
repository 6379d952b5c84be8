//! Deciding a change of a session from its document, before anything in the target changes.

use patcher::plan::RefuseReason;

use super::candidate::Relaid;
use super::claims::Claims;
use super::enders::{find_enders, idle_enders, way_for};
use super::memory::bytes_of;
use super::points::{carriers_of, idle_carriers, join_points};
use super::refusing::refuse_candidate;
use super::relaid::with_calls;
use super::remeasure::{Measures, Turn, decide_turns, measures_of, plan_exits, sees_ends};
use super::room::{Maps, admit_candidate, plan_for_room};
use super::rows::{Way, row_of};
use super::witnesses::{but_measured, put_moves_first, witnesses};
use super::{Candidate, Changed, Refusal, Selection, SessionError};
use crate::segment::{Document, Forking, MadeFor, Role, SiteDoc, State, Witness};
use ipath_target::process::modules::Module;

#[cfg(test)]
mod tests;

/// A change that has been decided but not carried out.
pub(super) struct Change {
    /// The document with the decision. The functions that come in or go are not yet marked so.
    pub(super) document: Document,
    /// The metrics and schemas before the change.
    pub(super) before: Measures,
    /// True if the functions will measure something else than the session does.
    pub(super) is_other: bool,
    /// The memory that the change takes in the target, in bytes.
    pub(super) bytes: u64,
    /// The functions that have to make way first.
    pub(super) way: Way,
    /// Ids of the functions that come in again.
    pub(super) ids: Vec<usize>,
    /// The functions that are new to the session.
    pub(super) fresh: Vec<Candidate>,
    /// The functions whose metrics change.
    pub(super) turns: Vec<Turn>,
    /// The report so far.
    pub(super) changed: Changed,
}

/// Decides the change for a selection.
///
/// # Errors
/// A schema has no room, the metrics cannot be measured in this process, or its mappings cannot be
/// read.
pub(super) fn decide(
    document: &Document,
    mut selection: Selection,
    modules: &[Module],
    maps: &Maps<'_>,
    made: MadeFor,
) -> Result<Change, SessionError> {
    let mut document = document.clone();
    let mut changed = Changed::default();
    let is_bare = |c: &&Candidate| c.is_bare && c.refused().is_none();
    let bare = selection.candidates.iter().filter(is_bare);
    changed.bare = bare.map(|c| c.name.clone()).collect();
    let before = measures_of(&document);
    let is_other = selection.remeasure.is_some();
    let schemas = document.schemas.len();
    let mut turns = decide_turns(&mut document, &mut selection, made)?;
    let (candidates, known) = in_turn(
        &mut document,
        modules,
        selection,
        &mut turns,
        &mut changed,
        maps,
    )?;
    let bytes = bytes_of(&candidates);
    let relaid: Vec<Relaid> = candidates.iter().filter_map(|c| c.relaid.clone()).collect();
    let mut way = way_for(&document, &candidates);
    let (mut ids, fresh) = way.made(&mut document, |document| {
        admit_all(document, modules, candidates, &turns, &mut changed)
    });
    for relaid in relaid
        .iter()
        .filter(|&r| fresh.iter().all(|c| c.relaid.as_ref() != Some(r)))
    {
        way.out.retain(|id| !relaid.are_in.contains(id));
        way.given_up.retain(|id| !relaid.given_up.contains(id));
    }
    ids.extend(known);
    ids.extend(carriers_of(&document, &ids));
    // Some functions may have a schema of their own.
    let is_other = is_other || document.schemas.len() > schemas;
    Ok(Change {
        document,
        before,
        is_other,
        bytes,
        way,
        ids,
        fresh,
        turns,
        changed,
    })
}

impl Way {
    /// Runs `work` on the document as it will be once way is made, then restores the states.
    fn made<R>(&self, document: &mut Document, work: impl FnOnce(&mut Document) -> R) -> R {
        let of_all = self.out.iter().chain(&self.retired);
        let before: Vec<(usize, State)> = of_all
            .map(|&id| (id, document.functions[id].state))
            .collect();
        for &id in &self.out {
            document.functions[id].state = State::Out;
        }
        for &id in &self.retired {
            document.functions[id].state = State::Retired;
        }
        let mut sites = |id: &usize| (*id, std::mem::take(&mut document.functions[*id].sites));
        let given_up: Vec<(usize, Vec<SiteDoc>)> = self.given_up.iter().map(&mut sites).collect();
        let result = work(document);
        for (id, sites) in given_up {
            document.functions[id].sites = sites;
        }
        for (id, state) in before {
            document.functions[id].state = state;
        }
        result
    }
}

/// A removal that has been decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Removal {
    /// Ids of the requested functions and points that are in.
    pub(super) ids: Vec<usize>,
    /// Ids of everything to take out: `ids`, and all that they alone need.
    pub(super) out: Vec<usize>,
}

/// Decides the removal of these functions and points.
pub(super) fn decide_removal(document: &Document, ids: &[usize]) -> Removal {
    let functions = &document.functions;
    let is_in = |id: &usize| {
        functions
            .get(*id)
            .is_some_and(|f| f.is_in() && f.role.is_shown())
    };
    let ids: Vec<usize> = ids.iter().copied().filter(is_in).collect();
    let mut out = ids.clone();
    out.extend(idle_witnesses(document, &ids));
    out.extend(idle_enders(document, &ids));
    out.extend(idle_carriers(document, &ids));
    out.sort_unstable();
    out.dedup();
    Removal { ids, out }
}

/// Returns the selected functions and the witnesses they need, in the order of patching. The ids
/// are those of points and spans that have been in the session before.
fn in_turn(
    document: &mut Document,
    modules: &[Module],
    selection: Selection,
    turns: &mut Vec<Turn>,
    changed: &mut Changed,
    maps: &Maps<'_>,
) -> Result<(Vec<Candidate>, Vec<usize>), SessionError> {
    let mut candidates = selection.candidates;
    let known = join_points(
        document,
        modules,
        &mut candidates,
        selection.points,
        changed,
    );
    with_calls(document, &mut candidates);
    plan_exits(document, &mut candidates, turns, changed);
    let has_exits = |&id: &usize| {
        let function = &document.functions[id];
        function.role.is_shown() && function.has_exits()
    };
    let sees_ends = known.iter().any(has_exits) || sees_ends(document, &candidates);
    let mut witnesses = witnesses(modules, sees_ends, selection.allowed);
    witnesses.retain(|c| document.needs(c.role));
    let witnesses = but_measured(document, &mut candidates, witnesses);
    candidates.extend(witnesses);
    candidates.extend(find_enders(
        document,
        modules,
        &candidates,
        selection.allowed,
    ));
    plan_for_room(document, &mut candidates, maps)?;
    // Enders, which were not requested, come last. Carriers of points come after the witnesses. In
    // each group, functions with puns come last: the bytes that a pun depends on are better changed
    // by the function they belong to.
    let has_puns = |c: &Candidate| c.plan.sites.iter().any(|s| s.pun.is_some());
    candidates.sort_by_key(|c| (c.role == Role::Ender, c.role == Role::Carrier, has_puns(c)));
    put_moves_first(&mut candidates);
    Ok((candidates, known))
}

/// Returns the ids of candidates that were in the session before and are out now, and the
/// candidates new to the session. The others are refused or already in.
fn admit_all(
    document: &mut Document,
    modules: &[Module],
    candidates: Vec<Candidate>,
    turns: &[Turn],
    changed: &mut Changed,
) -> (Vec<usize>, Vec<Candidate>) {
    let (mut ids, mut fresh) = (Vec::new(), Vec::new());
    let mut claims = Claims::of(document);
    for mut candidate in candidates {
        let known = row_of(document, &candidate);
        let refusal = match candidate.plan.refused() {
            Some((_, reason)) => Some(reason),
            None if candidate.unreadable.is_some() => None,
            None if known.is_some() || admit_candidate(&mut claims, &mut candidate) => None,
            None => Some(RefuseReason::OverlapsFunction),
        };
        let refusal = refusal.map(Refusal::from);
        if let Some(reason) = refusal.or_else(|| candidate.unreadable()) {
            refuse_candidate(document, modules, &candidate, reason, changed);
            continue;
        }
        let Some(id) = known else {
            fresh.push(candidate);
            continue;
        };
        let is_in = document.functions[id].is_in();
        let is_turned = turns.iter().any(|turn| turn.id == id);
        if candidate.role.is_measured() && !(is_in && is_turned) {
            let names = if is_in {
                &mut changed.already
            } else {
                &mut changed.functions
            };
            names.push(candidate.name);
        }
        if !is_in {
            ids.push(id);
        }
    }
    (ids, fresh)
}

/// Returns the ids of the witnesses that no function needs once `leaving` is out. The witness of
/// fork stays: a thread may still be recording a call then (`take_out_last`).
pub(super) fn idle_witnesses(document: &Document, leaving: &[usize]) -> Vec<usize> {
    let functions = document.functions.iter().enumerate();
    let active = functions.filter(|(id, f)| f.is_in() && !leaving.contains(id));
    let (witnesses, others): (Vec<_>, Vec<_>) = active.partition(|(_, f)| !f.role.is_shown());
    let has_exits = others.iter().any(|(_, f)| f.has_exits());
    // If calls are only counted, their ends do not matter.
    let waits = !document.pending.is_empty();
    let is_idle = |role: Role| match (others.is_empty(), role.witness()) {
        // Witnesses that serve counting stay for functions in awaited libraries.
        (true, Some(Witness::Forks(Forking::Copies))) => false,
        (true, Some(witness)) => !(waits && witness.is_for_counts()),
        (true, None) => true,
        (false, Some(witness)) => !has_exits && witness.tells_of_ends(),
        (false, None) => false,
    };
    let idle = witnesses.into_iter().filter(|(_, f)| is_idle(f.role));
    idle.map(|(id, _)| id).collect()
}

/// The number of these functions, from the first on, to patch in one stop, at least 1. A stop takes
/// some microseconds per site.
pub(super) fn in_one_stop<'i>(document: &Document, ids: impl Iterator<Item = &'i usize>) -> usize {
    const SITES: usize = 1000;
    let mut sites = 0;
    let fits = |id: &&usize| {
        sites += document.functions[**id].sites.len();
        sites <= SITES
    };
    ids.take_while(fits).count().max(1)
}
