//! Measuring functions less while they are in the session, because measuring them in full takes too
//! much time.

use std::collections::BTreeSet;

use super::enders::note_enders;
use super::lending::switch_lending;
use super::locked::Locked;
use super::remeasure::decide_taking;
use super::turn::turn_all;
use super::{Changed, Session, SessionError};
use crate::segment::ThrottledDoc;
use ipath_profile::{COUNT, Throttling, clock};

/// The reason of the stops, in the profile.
const WHY: &str = "throttle";

impl Session {
    /// Measures functions less, by id: those of `counted` are only counted from now on, and the
    /// probes of those in `out` are taken out. The profile says so of each. Ignores functions that
    /// are out. [`Self::settle`] is to follow for the functions of `out`, when there is time.
    ///
    /// # Errors
    /// The session cannot be locked, or the process cannot be changed.
    pub fn throttle(&mut self, counted: &[usize], out: &[usize]) -> Result<Changed, SessionError> {
        self.change(None, |locked| {
            let mut changed = Changed::default();
            take_out(locked, out)?;
            only_count(locked, counted, &mut changed)?;
            locked.write_last()?;
            Ok(changed)
        })
    }

    /// Adds what other functions need in place of the functions with these ids, which
    /// [`Self::throttle`] has taken out: until then, tail calls to them end the times of their
    /// callers.
    ///
    /// # Errors
    /// The session cannot be locked, or the process cannot be changed.
    pub fn settle(&mut self, out: &[usize]) -> Result<(), SessionError> {
        self.change(None, |locked| {
            locked.make_up_for(WHY, out)?;
            locked.note_written();
            Ok(())
        })
    }
}

fn take_out(locked: &mut Locked<'_>, ids: &[usize]) -> Result<(), SessionError> {
    let ids = is_in(locked, ids);
    if ids.is_empty() {
        return Ok(());
    }
    note(locked, &ids, Throttling::Out);
    let ids = locked.take_out_wanted(WHY, &ids)?;
    // A child must not record into the counters of its parent for a moment.
    let functions = &locked.document.functions;
    let creates = ids
        .iter()
        .copied()
        .filter(|&id| functions[id].children.is_some());
    let creates: Vec<usize> = creates.collect();
    if creates.is_empty() {
        return Ok(());
    }
    locked.make_up_for(WHY, &creates)
}

fn only_count(
    locked: &mut Locked<'_>,
    ids: &[usize],
    changed: &mut Changed,
) -> Result<(), SessionError> {
    let mut ids = is_in(locked, ids);
    let document = &locked.document;
    let measured = |id: &usize| document.measured_of(&document.functions[*id]);
    ids.retain(|id| measured(id) != [COUNT]);
    let names: BTreeSet<String> = ids.iter().flat_map(measured).map(str::to_owned).collect();
    let names: Vec<String> = names.into_iter().filter(|name| name != COUNT).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let made = locked.made_for();
    let turns = decide_taking(&mut locked.document, &ids, names, made)?;
    note(locked, &ids, Throttling::Counted);
    turn_all(locked, WHY, turns, changed)?;
    switch_lending(locked)?;
    note_enders(&mut locked.document);
    Ok(())
}

/// The functions and points among `ids` that are in.
fn is_in(locked: &Locked<'_>, ids: &[usize]) -> Vec<usize> {
    let functions = &locked.document.functions;
    let is_in = |id: &usize| {
        let function = functions.get(*id);
        function.is_some_and(|f| f.is_in() && f.role.is_shown())
    };
    ids.iter().copied().filter(is_in).collect()
}

/// Notes in the document that functions are throttled from now on.
fn note(locked: &mut Locked<'_>, ids: &[usize], how: Throttling) {
    let since_ns = clock::ns_since_start(locked.segment.header(), clock::tsc());
    for &id in ids {
        locked.document.functions[id].throttled = Some(ThrottledDoc { since_ns, how });
    }
}
