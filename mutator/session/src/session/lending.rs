//! Which functions lend their calls at tail calls, and what the runtime is told of that.
//!
//! Functions that lend to each other, directly or by way of others, are a group with a number of its own. What has been lent by
//! one is ended by a return of one with the same number: neither by that of any other function, nor after the group has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use abi::image::SYMBOL_PROBES;
use abi::probe::{LENDING, LENDS, Probe};
use patcher::Svma;

use super::SessionError;
use super::enders::ending_places;
use super::locked::Locked;
use super::runtime_memory::read;
use super::view::View;
use crate::segment::Document;

/// A function's number, and whether it lends.
type State = (u16, bool);

/// Numbers there are, from 1 on.
const NUMBERS: u16 = LENDING;
/// Bytes of a row of the probe table, and where what functions lend stands in it.
const ROW: usize = size_of::<Probe>();
const AT: usize = offset_of!(Probe, lending);

impl View<'_> {
    /// What the runtime has been told of those that have a number: a command may have been killed before it could write that
    /// down, or after.
    pub(super) fn told_lending(&self) -> Result<BTreeMap<usize, State>, SessionError> {
        let table = self.symbol(SYMBOL_PROBES)?;
        let functions = &self.document.functions;
        let states = read(self.space.memory(), table, ROW * functions.len())?;
        let state = |(id, state): (usize, &[u8])| {
            let word = u16::from_le_bytes(state.get(AT..AT + 2)?.try_into().ok()?);
            let number = word & LENDING;
            (number != 0).then_some((id, (number, word & LENDS != 0)))
        };
        Ok(states.chunks(ROW).enumerate().filter_map(state).collect())
    }
}

/// Tells the runtime which functions lend, once all that must be in for that is in.
pub(super) fn switch_lending(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let told = locked.view().told_lending()?;
    let mut members: BTreeMap<u16, usize> = BTreeMap::new();
    for (number, _) in told.values() {
        *members.entry(*number).or_default() += 1;
    }
    let lending = lending_functions(&locked.document);
    let mut wanted: BTreeMap<usize, State> = BTreeMap::new();
    for group in lending_groups(&locked.document, &lending) {
        // As it has been told, with all that have its number.
        let first = group.first().and_then(|id| told.get(id));
        let known = first.map(|&(number, _)| number).filter(|number| {
            let is_told = |id| told.get(id) == Some(&(*number, lending.contains(id)));
            members.get(number) == Some(&group.len()) && group.iter().all(is_told)
        });
        let number = known.unwrap_or_else(|| next_number(&mut locked.document));
        let state = |id: usize| (id, (number, lending.contains(&id)));
        wanted.extend(group.into_iter().map(state));
    }
    tell_lending(locked, &told, &wanted)
}

/// Has nothing more lent that some of `leaving` is needed for. What has been lent is ended by their returns all the same.
pub(super) fn lend_no_more(locked: &mut Locked<'_>, leaving: &[usize]) -> Result<(), SessionError> {
    let told = locked.view().told_lending()?;
    let numbers = leaving.iter().filter_map(|id| told.get(id));
    let numbers: BTreeSet<u16> = numbers.map(|&(number, _)| number).collect();
    let state = |(&id, &(number, lends)): (&usize, &State)| {
        (id, (number, lends && !numbers.contains(&number)))
    };
    let wanted = told.iter().map(state).collect();
    tell_lending(locked, &told, &wanted)
}

/// Has nothing more lent that some of `leaving` is needed for, nor what has been lent so ended by a return.
pub(super) fn stop_lending(locked: &mut Locked<'_>, leaving: &[usize]) -> Result<(), SessionError> {
    let told = locked.view().told_lending()?;
    let numbers = leaving.iter().filter_map(|id| told.get(id));
    let numbers: BTreeSet<u16> = numbers.map(|&(number, _)| number).collect();
    let stays = |state: &State| !numbers.contains(&state.0);
    let wanted = told.iter().filter(|(_, state)| stays(state));
    let wanted = wanted.map(|(&id, &state)| (id, state)).collect();
    tell_lending(locked, &told, &wanted)
}

/// Tells the runtime of those whose state is another one than it has been told; those not wanted have none.
fn tell_lending(
    locked: &mut Locked<'_>,
    told: &BTreeMap<usize, State>,
    wanted: &BTreeMap<usize, State>,
) -> Result<(), SessionError> {
    let all: BTreeSet<usize> = told.keys().chain(wanted.keys()).copied().collect();
    let mut changed: Vec<usize> = all.into_iter().collect();
    changed.retain(|id| told.get(id) != wanted.get(id));
    if changed.is_empty() {
        return Ok(());
    }
    for id in &changed {
        let (number, lends) = wanted.get(id).copied().unwrap_or_default();
        let function = &mut locked.document.functions[*id];
        (function.lending, function.is_lending) = (number, lends);
    }
    // Before the runtime has it, so that no number is used twice.
    locked.segment.write_document(&locked.document)?;
    // Those that end calls before those that lend them.
    changed.sort_by_key(|id| wanted.get(id).is_some_and(|&(_, lends)| lends));
    let table = locked.symbol(SYMBOL_PROBES)?;
    let functions = &locked.document.functions;
    let write = |&id: &usize| {
        let word = functions[id].lending_word().to_le_bytes().to_vec();
        (table.plus((ROW * id + AT) as u64), word)
    };
    let writes: Vec<_> = changed.iter().map(write).collect();
    locked.write_own(&writes)
}

/// Another number than the last ones.
fn next_number(document: &mut Document) -> u16 {
    let last = &mut document.lendings;
    *last = match *last {
        last if last >= NUMBERS => 1,
        last => last + 1,
    };
    *last
}

/// The measured functions all of whose callees to lend to are in, and all that those go on to.
pub(super) fn lending_functions(document: &Document) -> BTreeSet<usize> {
    let functions = &document.functions;
    let lends = |id: &usize| {
        let f = &functions[*id];
        f.is_in() && f.role.sees_returns() && !f.has_only_entry() && !f.lends.is_empty()
    };
    let lending: Vec<usize> = (0..functions.len()).filter(lends).collect();
    let mut callers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut cannot = Vec::new();
    for (id, callee) in tail_calls(document, &lending) {
        match callee {
            Some(callee) => callers.entry(callee).or_default().push(id),
            None => cannot.push(id),
        }
    }
    // An ender that leads to where nothing ends a call makes those that lead to it the same. What is measured ends by
    // itself the calls that it cannot lend.
    let mut seen = BTreeSet::new();
    while let Some(id) = cannot.pop() {
        if seen.insert(id) && !functions[id].role.is_shown() {
            cannot.extend(callers.remove(&id).unwrap_or_default());
        }
    }
    let is_measured = |id: &usize| functions[*id].role.is_shown();
    let measured = lending.into_iter().filter(is_measured);
    measured.filter(|id| !seen.contains(id)).collect()
}

/// The tail calls of these functions at which they lend: each with the callee, where that is in.
fn tail_calls(document: &Document, of: &[usize]) -> Vec<(usize, Option<usize>)> {
    let ending = ending_places(document);
    let mut found = Vec::new();
    for &id in of {
        let function = &document.functions[id];
        let bias = document.place_of(function).map(|(bias, _)| bias);
        for &at in &function.lends {
            let callee = bias.and_then(|bias| ending.get(&(bias, Svma(at))));
            found.push((id, callee.copied()));
        }
    }
    found
}

/// Those that lend with those that they lend to, by group.
pub(super) fn lending_groups(
    document: &Document,
    lending: &BTreeSet<usize>,
) -> Vec<BTreeSet<usize>> {
    let mut neighbours: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut seen = lending.clone();
    let mut work: Vec<usize> = lending.iter().copied().collect();
    while !work.is_empty() {
        for (id, callee) in tail_calls(document, &std::mem::take(&mut work)) {
            let Some(callee) = callee else {
                continue;
            };
            neighbours.entry(id).or_default().push(callee);
            neighbours.entry(callee).or_default().push(id);
            // What is measured lends by itself.
            let goes_on = !document.functions[callee].role.is_shown();
            if seen.insert(callee) && goes_on {
                work.push(callee);
            }
        }
    }
    let mut groups = Vec::new();
    let mut grouped: BTreeSet<usize> = BTreeSet::new();
    for &start in lending {
        if !grouped.insert(start) {
            continue;
        }
        let mut group = BTreeSet::from([start]);
        let mut work = vec![start];
        while let Some(id) = work.pop() {
            let next = neighbours.get(&id).into_iter().flatten().copied();
            let new: Vec<usize> = next.filter(|&next| grouped.insert(next)).collect();
            group.extend(&new);
            work.extend(new);
        }
        groups.push(group);
    }
    groups
}
