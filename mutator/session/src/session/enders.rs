//! Enders: functions that tail calls of measured functions lead to. They are probed at their exits
//! without being requested. A function that returns through a return address ends all calls that
//! have left it to a callee.
//!
//! The direct targets of a measured function's tail calls are found before it is put in. A target
//! either is measured itself or becomes an *ender*, whose returns end the calls lent to it. Its own
//! tail calls lead to further enders. The runtime lends the activations of a function while all
//! functions that can end them are in: [`switch_lending`](super::lending::switch_lending).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patcher::function::Function;
use patcher::plan::{Allowed, Effects, FunctionPlan, plan_allowed};
use patcher::{Bias, Svma};

use super::candidate::{Candidate, FunctionPlace, Origin, Relaid, display_name};
use super::claims::Claims;
use super::locked::Locked;
use super::remeasure::sees_ends;
use super::rows::{Way, follows_goroutines, row_of};
use super::{Selection, SessionError, allowed};
use crate::segment::{Document, Role, Witness};
use ipath_symbols::images;
use ipath_target::process::modules::{Module, VDSO, modules};

/// The most consecutive tail calls to follow from a measured function.
const MOST_IN_A_ROW: usize = 4;
/// The most enders that one change adds. Other functions need room, too.
const MAX_ENDERS: usize = 4096;

/// The probe points of an ender.
const ENDER: Effects = Effects {
    entry: false,
    exits: true,
};

/// The target of a tail call, yet to be analyzed.
struct Called {
    origin: Origin,
    /// The link-time address of the target.
    at: Svma,
    /// Number of tail calls from a measured function to it.
    distance: usize,
}

impl Candidate {
    /// True if calls that have been lent to it end when it returns.
    pub(super) fn ends(&self) -> bool {
        self.has_exits() && self.plan.returns_to_caller
    }

    /// True if the plan has exits at which lent calls can end.
    fn has_exits(&self) -> bool {
        self.role.sees_returns() && !self.plan.exits.is_empty() && self.plan.refused().is_none()
    }
}

/// Plans the missing enders: targets of tail calls of these candidates and of the session's
/// functions.
pub(super) fn find_enders(
    document: &Document,
    modules: &[Module],
    candidates: &[Candidate],
    allowed: Allowed,
) -> Vec<Candidate> {
    if !sees_ends(document, candidates) || has_goroutines(document, candidates) {
        return Vec::new();
    }
    let measured = candidates.iter().filter(|c| c.ends()).map(Candidate::place);
    let mut seen: BTreeSet<FunctionPlace> = measured.collect();
    seen.extend(ending_places(document).into_keys());
    // A function has only one kind of hook, so one that is only counted ends nothing.
    seen.extend(measured_places(document));
    let counted = candidates.iter().filter(|c| c.role.is_measured());
    seen.extend(
        counted
            .filter(|c| c.refused().is_none())
            .map(Candidate::place),
    );
    let of_candidate = |c: &Candidate| {
        let called = c.plan.tail_calls().into_iter();
        let origin = c.origin();
        called.map(move |at| Called {
            origin: origin.clone(),
            at,
            distance: 1,
        })
    };
    let fresh = candidates
        .iter()
        .filter(|c| c.role.is_measured() && c.has_exits());
    // Nearest first: each function is analyzed once.
    let mut work: VecDeque<Called> = fresh.flat_map(of_candidate).collect();
    work.extend(missing_enders(document, modules));
    let taken = document.functions.len() + candidates.len();
    let most = MAX_ENDERS.min(abi::MOST_FUNCTIONS.saturating_sub(taken) / 2);
    let mut found: Vec<Candidate> = Vec::new();
    while let Some(called) = work.pop_front() {
        let is_new = seen.insert((called.origin.bias, called.at));
        if !is_new || found.len() == most {
            continue;
        }
        let Some(ender) = called.plan(&modules[called.origin.module], allowed) else {
            continue;
        };
        if called.distance < MOST_IN_A_ROW {
            let distance = called.distance + 1;
            work.extend(of_candidate(&ender).map(|c| Called { distance, ..c }));
        }
        found.push(ender);
    }
    found
}

/// Functions that are not in although functions that are in are prepared to lend to them.
fn missing_enders(document: &Document, modules: &[Module]) -> Vec<Called> {
    let ending = ending_places(document);
    let mut found = Vec::new();
    let lending = document.functions.iter();
    for function in lending.filter(|f| f.is_in() && !f.has_only_entry()) {
        let Some(doc) = document.modules.get(function.module) else {
            continue;
        };
        let missing = function.lends.iter().map(|&at| Svma(at));
        let missing: Vec<Svma> = missing
            .filter(|&at| !ending.contains_key(&(doc.bias, at)))
            .collect();
        if missing.is_empty() {
            continue;
        }
        let Some(module) = modules.iter().position(|m| m.path == doc.path) else {
            continue;
        };
        let Ok(image) = images::of_module(&modules[module]) else {
            continue;
        };
        let origin = Origin {
            module,
            image,
            bias: doc.bias,
        };
        found.extend(missing.into_iter().map(|at| Called {
            origin: origin.clone(),
            at,
            distance: 1,
        }));
    }
    found
}

/// The functions that are in and whose exits end lent calls, with their ids.
pub(super) fn ending_places(document: &Document) -> BTreeMap<FunctionPlace, usize> {
    let functions = document.functions.iter().enumerate();
    let ending = functions.filter(|(_, f)| f.is_in() && f.ends && !f.has_only_entry());
    ending
        .filter_map(|(id, f)| Some((document.place_of(f)?, id)))
        .collect()
}

/// The places of the measured functions that are in.
pub(super) fn measured_places(document: &Document) -> BTreeSet<FunctionPlace> {
    let functions = document.functions.iter();
    let measured = functions.filter(|f| f.is_in() && f.role.is_measured());
    measured.filter_map(|f| document.place_of(f)).collect()
}

/// True if there are goroutines. Nothing is lent then because they change threads.
fn has_goroutines(document: &Document, candidates: &[Candidate]) -> bool {
    follows_goroutines(document)
        || candidates
            .iter()
            .any(|c| c.role == Role::Witness(Witness::Moves))
}

/// Ids of the active enders and witnesses of fork for functions that these candidates measure. The
/// two kinds are never in at once and may change the same bytes.
fn counterparts(document: &Document, candidates: &[Candidate]) -> Vec<usize> {
    let measured = candidates
        .iter()
        .filter(|c| c.role.is_measured() && c.plan.refused().is_none());
    let measured: BTreeSet<FunctionPlace> = measured.map(Candidate::place).collect();
    let functions = document.functions.iter().enumerate();
    let counterparts = functions.filter(|(_, f)| {
        let is_witness = !f.role.is_shown() && f.role.may_be_measured();
        let place = document.place_of(f);
        f.is_in() && is_witness && place.is_some_and(|place| measured.contains(&place))
    });
    counterparts.map(|(id, _)| id).collect()
}

/// Makes candidates lend at tail calls to functions that are in, are candidates, or are listed in
/// `ids`.
pub(super) fn lend_tail_calls(document: &Document, candidates: &mut [Candidate], ids: &[usize]) {
    if has_goroutines(document, candidates) {
        candidates
            .iter_mut()
            .for_each(|c| c.plan.lend_to(&BTreeSet::new()));
        return;
    }
    let mut ending: BTreeMap<Bias, BTreeSet<Svma>> = BTreeMap::new();
    let known = ids.iter().map(|&id| &document.functions[id]);
    let known = known.filter(|f| f.ends && !f.has_only_entry());
    let known = known.filter_map(|f| document.place_of(f));
    let fresh = candidates.iter().filter(|c| c.ends()).map(Candidate::place);
    for (bias, at) in fresh
        .chain(known)
        .chain(ending_places(document).into_keys())
    {
        ending.entry(bias).or_default().insert(at);
    }
    let none = BTreeSet::new();
    for candidate in candidates {
        let ends = ending.get(&candidate.bias).unwrap_or(&none);
        candidate.plan.lend_to(ends);
    }
}

/// Returns the ids of the enders that no tail calls lead to once `leaving` is out.
pub(super) fn idle_enders(document: &Document, leaving: &[usize]) -> Vec<usize> {
    let ending = ending_places(document);
    let functions = &document.functions;
    let stays = |id: &usize| {
        let f = &functions[*id];
        f.is_in() && f.role.is_shown() && !f.has_only_entry() && !leaving.contains(id)
    };
    let mut work: Vec<usize> = (0..functions.len()).filter(stays).collect();
    let mut needed = BTreeSet::new();
    while let Some(id) = work.pop() {
        let Some((bias, _)) = document.place_of(&functions[id]) else {
            continue;
        };
        let called = functions[id].lends.iter();
        let called = called.filter_map(|&at| ending.get(&(bias, Svma(at))));
        let enders = called.filter(|&&id| !functions[id].role.is_shown());
        work.extend(enders.filter(|&&id| needed.insert(id)));
    }
    let is_idle = |id: &usize| {
        functions[*id].is_in() && functions[*id].role == Role::Ender && !needed.contains(id)
    };
    (0..functions.len()).filter(is_idle).collect()
}

/// Adds a note to the profile that lists functions probed without being requested.
pub(super) fn note_enders(document: &mut Document) {
    const SAYS: &str = "probed at their exits, as tail calls lead there: ";
    /// The most names to list.
    const MAX_NAMES: usize = 16;
    let functions = document.functions.iter();
    let enders = functions.filter(|f| f.is_in() && f.role == Role::Ender);
    let names: Vec<&str> = enders.map(|f| f.name.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let (first, more) = names.split_at(names.len().min(MAX_NAMES));
    let note = match more.len() {
        0 => format!("{SAYS}{}", first.join(", ")),
        more => format!("{SAYS}{} and {more} more", first.join(", ")),
    };
    let notes = &mut document.notes;
    notes.retain(|note| !note.starts_with(SAYS));
    notes.push(note);
}

/// The functions that must go before these candidates come in: counterparts of functions to be
/// measured, enders in the way of requested functions, and the patches of functions that are laid
/// out anew.
pub(super) fn way_for(document: &Document, candidates: &[Candidate]) -> Way {
    let retired = enders_in_the_way(document, candidates);
    let mut out = counterparts(document, candidates);
    let active = retired.iter().filter(|&&id| document.functions[id].is_in());
    out.extend(active);
    let relaid = candidates.iter().filter(|c| c.refused().is_none());
    let relaid: Vec<&Relaid> = relaid.filter_map(|c| c.relaid.as_ref()).collect();
    out.extend(relaid.iter().flat_map(|relaid| &relaid.are_in));
    let given_up = relaid.iter().flat_map(|relaid| &relaid.given_up);
    Way {
        given_up: given_up.copied().collect(),
        out,
        retired,
    }
}

/// The ids of the enders whose bytes new candidates need. Leaves out enders of candidates that
/// something else obstructs too.
fn enders_in_the_way(document: &Document, candidates: &[Candidate]) -> Vec<usize> {
    let functions = document.functions.iter().enumerate();
    let enders = functions.filter(|(_, f)| f.role == Role::Ender && !f.is_retired());
    let enders: BTreeMap<FunctionPlace, usize> = enders
        .filter_map(|(id, f)| Some((document.place_of(f)?, id)))
        .collect();
    if enders.is_empty() {
        return Vec::new();
    }
    let claims = Claims::of(document);
    let asked_for = candidates.iter().filter(|c| {
        let is_new = c.role != Role::Ender && row_of(document, c).is_none();
        is_new && c.plan.refused().is_none()
    });
    let mut found = BTreeSet::new();
    for candidate in asked_for {
        let others = claims.in_the_way_of(candidate);
        let others: Option<Vec<usize>> = others
            .iter()
            .map(|place| enders.get(place).copied())
            .collect();
        // If something else is in its way too, it cannot come in anyway.
        found.extend(others.into_iter().flatten());
    }
    found.into_iter().collect()
}

/// After measured functions are out, adds the enders and witnesses that take over their other
/// tasks. Fails if the process cannot be read or changed.
pub(super) fn replace_removed(locked: &mut Locked<'_>, out: &[usize]) -> Result<(), SessionError> {
    let functions = &locked.document.functions;
    let is_idle = !functions.iter().any(|f| f.is_in() && f.role.is_shown());
    let has_forked = out.iter().any(|&id| functions[id].children.is_some());
    if is_idle {
        return Ok(());
    }
    let modules = &modules(&locked.process, &locked.space.maps()?);
    if !has_forked && missing_enders(&locked.document, modules).is_empty() {
        return Ok(());
    }
    let nothing = Selection::of(Vec::new(), allowed(&locked.process, modules, false));
    locked.add("remove", modules, nothing, None).map(drop)
}

impl Called {
    /// Plans the function as an ender. Returns `None` if not all its exits can be patched.
    fn plan(&self, module: &Module, allowed: Allowed) -> Option<Candidate> {
        let opened = &self.origin.image;
        let function: Function = opened.image().functions().function_at(self.at)?;
        let is_whole = function.range.start == self.at
            && module.path != VDSO
            && module.maps_function(self.origin.bias, &function)
            && !module.shares(self.origin.bias, &function);
        if !is_whole {
            return None;
        }
        let want = ENDER;
        let plan: FunctionPlan =
            plan_allowed(opened.image(), opened.context(), &function, want, allowed);
        let name = display_name(&function, module.file_name());
        let candidate = Candidate::new(self.origin.clone(), Role::Ender, name, plan);
        candidate.ends().then_some(candidate)
    }
}
