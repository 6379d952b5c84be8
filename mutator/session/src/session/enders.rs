//! Functions that tail calls of measured ones lead to, probed at their exits besides those asked for: who returns through
//! a return address ends all calls that have left it to a callee.
//!
//! What a measured function's tail calls lead to directly is found before it is put in. Such a function is measured itself, or
//! becomes an *ender*, whose returns end what has been lent to them; its own tail calls lead to further ones. The runtime
//! lends the activations of a function while all that can end them are in: [`switch_lending`](super::lending::switch_lending).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patcher::function::Function;
use patcher::plan::{Allowed, Effects, FunctionPlan, plan_allowed};
use patcher::{Bias, Svma};

use super::candidate::{Candidate, FunctionPlace, Origin, display_name};
use super::claims::Claims;
use super::locked::Locked;
use super::remeasure::sees_ends;
use super::rows::{Way, follows_goroutines, row_of};
use super::{Selection, SessionError, allowed};
use crate::segment::{Document, Role, Witness};
use ipath_symbols::images::{self, OpenImage};
use ipath_target::process::modules::{Module, VDSO, modules};

/// Tail calls in a row, from one function to the next, that are followed.
const MOST_IN_A_ROW: usize = 4;
/// Functions that one change has probed so, at most; there must be room for others.
const MOST: usize = 4096;

/// The probe points of an ender.
const ENDER: Effects = Effects {
    entry: false,
    exits: true,
};

/// A function that tail calls lead to, yet to be looked at.
struct Called {
    origin: Origin,
    at: Svma,
    /// Tail calls from a measured function to it.
    distance: usize,
}

impl Candidate {
    /// True if calls that have been lent to it end when it returns.
    pub(super) fn ends(&self) -> bool {
        self.has_exits() && self.plan.returns_to_caller
    }

    fn has_exits(&self) -> bool {
        self.role.sees_returns() && !self.plan.exits.is_empty() && self.plan.refused().is_none()
    }
}

/// Plans what the tail calls of these candidates lead to, and of what is in the session, and is not in it yet.
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
    // Of one function there are not two kinds of hooks: one that is only counted ends nothing.
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
            origin,
            at,
            distance: 1,
        })
    };
    let fresh = candidates
        .iter()
        .filter(|c| c.role.is_measured() && c.has_exits());
    // The nearest first: each is looked at once.
    let mut work: VecDeque<Called> = fresh.flat_map(of_candidate).collect();
    work.extend(missing_enders(document, modules));
    let taken = document.functions.len() + candidates.len();
    let most = MOST.min(abi::MOST_FUNCTIONS.saturating_sub(taken) / 2);
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

/// What the functions of the session that are in have been prepared to lend to and is not in.
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
            origin,
            at,
            distance: 1,
        }));
    }
    found
}

/// The functions that are in at whose exits calls end that have been lent to them, with their ids.
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

/// Where there are goroutines nothing is lent: they go from thread to thread.
fn has_goroutines(document: &Document, candidates: &[Candidate]) -> bool {
    follows_goroutines(document)
        || candidates
            .iter()
            .any(|c| c.role == Role::Witness(Witness::Moves))
}

/// Ids of what is in only as enders, or as what begins children, of functions that these candidates measure. The two are
/// never in at once, and may change the same bytes.
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

/// Has those of the candidates lend to what is in, or is one of them itself, at their tail calls.
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

/// Enders that nothing leads to by tail calls once `leaving` is out.
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

/// Says in the profile what is probed that nobody has asked for.
pub(super) fn note_enders(document: &mut Document) {
    const SAYS: &str = "probed at their exits, as tail calls lead there: ";
    /// Names that are told.
    const MOST: usize = 16;
    let functions = document.functions.iter();
    let enders = functions.filter(|f| f.is_in() && f.role == Role::Ender);
    let names: Vec<&str> = enders.map(|f| f.name.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let (first, more) = names.split_at(names.len().min(MOST));
    let note = match more.len() {
        0 => format!("{SAYS}{}", first.join(", ")),
        more => format!("{SAYS}{} and {more} more", first.join(", ")),
    };
    let notes = &mut document.notes;
    notes.retain(|note| !note.starts_with(SAYS));
    notes.push(note);
}

/// What goes before these candidates come in: what is measured from now on, and enders that are in the way of what has been
/// asked for.
pub(super) fn way_for(document: &Document, candidates: &[Candidate]) -> Way {
    let retired = enders_in_the_way(document, candidates);
    let mut out = counterparts(document, candidates);
    let active = retired.iter().filter(|&&id| document.functions[id].is_in());
    out.extend(active);
    Way { out, retired }
}

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
        // Where something else is in its way, too, it cannot come in anyway.
        found.extend(others.into_iter().flatten());
    }
    found.into_iter().collect()
}

/// Has the functions that have been measured and are out do what else is needed of them.
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
    let nothing = Selection {
        allowed: allowed(&locked.process, modules, false),
        candidates: Vec::new(),
        points: Vec::new(),
        unmatched: Vec::new(),
        unreadable: Vec::new(),
        unplanned: 0,
        remeasure: None,
    };
    locked.add("remove", modules, nothing, None).map(drop)
}

impl Called {
    /// How it is patched, where all its exits can be.
    fn plan(&self, module: &Module, allowed: Allowed) -> Option<Candidate> {
        let OpenImage { image, context, .. } = self.origin.image;
        let function: Function = image.functions().function_at(self.at)?;
        let is_whole = function.range.start == self.at
            && module.path != VDSO
            && module.maps_function(self.origin.bias, &function)
            && !module.shares(self.origin.bias, &function);
        if !is_whole {
            return None;
        }
        let want = ENDER;
        let plan: FunctionPlan = plan_allowed(image, context, &function, want, allowed);
        let name = display_name(&function, module.file_name());
        let candidate = Candidate::new(self.origin, Role::Ender, name, plan);
        candidate.ends().then_some(candidate)
    }
}
