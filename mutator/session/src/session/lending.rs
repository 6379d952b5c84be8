//! Functions that lend their calls at tail calls, and their state in the runtime.
//!
//! Functions that lend to each other, directly or through others, form a group with its own number.
//! A lent call is ended only by the return of a function with the same number. Returns of other
//! functions do not end it, and none does after its group has changed.

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

/// A function's group number, and true if it lends.
type State = (u16, bool);

/// The largest group number; the first is 1.
const NUMBERS: u16 = LENDING;
/// The size of a row of the probe table in bytes.
const ROW: usize = size_of::<Probe>();
/// The offset of the lending word in a row of the probe table, in bytes.
const AT: usize = offset_of!(Probe, lending);

impl View<'_> {
    /// The lending states in the runtime's table, by function id. Leaves out functions without a
    /// group. The document may differ: a command may be killed before or after it writes the table.
    /// Fails if the table cannot be read.
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

/// Updates the runtime's lending states once all functions needed for lending are in. Fails if the
/// table cannot be read or written.
pub(super) fn switch_lending(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let told = locked.view().told_lending()?;
    let mut members: BTreeMap<u16, usize> = BTreeMap::new();
    for (number, _) in told.values() {
        *members.entry(*number).or_default() += 1;
    }
    let lending = lending_functions(&locked.document);
    let mut wanted: BTreeMap<usize, State> = BTreeMap::new();
    for group in lending_groups(&locked.document, &lending) {
        // A group keeps its number if its members and their states are unchanged.
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

/// Stops lending in the groups of `leaving`. Lent calls are still ended by the groups' returns.
/// Fails if the table cannot be read or written.
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

/// Stops lending in the groups of `leaving`, and removes their numbers. Their returns no longer end
/// lent calls. Fails if the table cannot be read or written.
pub(super) fn stop_lending(locked: &mut Locked<'_>, leaving: &[usize]) -> Result<(), SessionError> {
    let told = locked.view().told_lending()?;
    let numbers = leaving.iter().filter_map(|id| told.get(id));
    let numbers: BTreeSet<u16> = numbers.map(|&(number, _)| number).collect();
    let stays = |state: &State| !numbers.contains(&state.0);
    let wanted = told.iter().filter(|(_, state)| stays(state));
    let wanted = wanted.map(|(&id, &state)| (id, state)).collect();
    tell_lending(locked, &told, &wanted)
}

/// Writes the states that differ from `told` into the document and the runtime's table. Functions
/// not in `wanted` get none.
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
    // Written before the runtime's table, so that no number is used twice.
    locked.segment.write_document(&locked.document)?;
    // Functions that end calls are updated before those that lend them.
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

/// The next group number. After the largest it starts again at 1.
fn next_number(document: &mut Document) -> u16 {
    let last = &mut document.lendings;
    *last = match *last {
        last if last >= NUMBERS => 1,
        last => last + 1,
    };
    *last
}

/// Returns the ids of the measured functions that can lend: all their tail callees are in, and so
/// are all functions that these callees lead to by tail calls.
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
    // An ender fails if one of its callees does not end calls, and so do the functions that lead to
    // it. A measured function itself ends the calls that it cannot lend.
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

/// The tail calls at which these functions lend: the id of each caller, and the id of the callee.
/// `None` for a callee that is not in.
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

/// The connected groups of functions that lend and the functions they lend to, each as the ids of
/// its members.
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
            // A measured function lends by itself.
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
