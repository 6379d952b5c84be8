//! Carrying out a decided change in the target.

use super::copies;
use super::decide::Change;
use super::enter::prepare;
use super::lending::switch_lending;
use super::locked::Locked;
use super::remeasure::{come_in_changed, possible_turns, put_back};
use super::rows::Way;
use super::traps::fill_traps;
use super::turn::{turn_all, write_schemas};
use super::write::switch;
use super::{Changed, SessionError, bare};
use crate::segment::{Document, State};
use ipath_profile::clock;
use ipath_target::process::modules::Module;
use ipath_target::tracee::Stopped;

/// The reason for stops while a new session gets its first functions.
pub(super) const AT_START: &str = "attach";

/// The outcome of a carried-out change.
pub(super) struct Executed {
    /// Ids of the functions that came in. `None` if there was nothing to do.
    pub(super) ids: Option<Vec<usize>>,
    /// The report of the change.
    pub(super) changed: Changed,
}

impl Change {
    /// Carries out the change. `stopped` are the threads of a process that is already stopped and
    /// stays so. Fails if every function is refused, or if the process cannot be changed.
    pub(super) fn execute(
        self,
        locked: &mut Locked<'_>,
        why: &str,
        modules: &[Module],
        mut stopped: Option<&mut Stopped>,
    ) -> Result<Executed, SessionError> {
        let Self {
            mut ids,
            mut changed,
            ..
        } = self;
        locked.document = self.document;
        locked.view().take_memory(self.bytes)?;
        make_way(locked, why, &self.way)?;
        let prepared = prepare(
            locked,
            modules,
            self.fresh,
            &ids,
            stopped.as_deref_mut(),
            &mut changed,
        )?;
        ids.extend(prepared);
        let turns = possible_turns(&locked.document, self.turns);
        let turns = come_in_changed(&mut locked.document, turns, &ids);
        if let Some(refusal) = changed.refusal().filter(|_| turns.is_empty()) {
            put_back(&mut locked.document, self.before);
            locked.segment.write_document(&locked.document)?;
            return Err(refusal);
        }
        if ids.is_empty() && turns.is_empty() {
            return Ok(Executed { ids: None, changed });
        }
        if self.is_other {
            locked.segment.write_document(&locked.document)?;
            write_schemas(locked)?;
        }
        changed.trapped = with_traps(&locked.document, &ids);
        fill_traps(locked, &ids)?;
        // Publishes the new trampolines.
        if locked.document.quiet {
            locked.view().publish_maps()?;
        }
        if why != AT_START {
            let now = clock::ns_since_start(locked.segment.header(), clock::tsc());
            note_since(&mut locked.document, &ids, now);
        }
        switch(locked, &ids, true)?;
        // Written before the first byte changes: a command that finds this session half done can
        // restore the bytes.
        locked.segment.write_document(&locked.document)?;
        copies::publish(locked)?;
        if let Err(error) = locked.put_in(why, ids.clone(), stopped, &mut changed) {
            // The functions that came in are removed again, so that none is counted in part.
            let _ = locked.take_out(why, &ids);
            locked.segment.write_document(&locked.document)?;
            return Err(error);
        }
        turn_all(locked, why, turns, &mut changed)?;
        switch_lending(locked)?;
        Ok(Executed {
            ids: Some(ids),
            changed,
        })
    }
}

/// Removes the functions that make way.
fn make_way(locked: &mut Locked<'_>, why: &str, way: &Way) -> Result<(), SessionError> {
    let is_measured = |id: &&usize| {
        let function = &locked.document.functions[**id];
        function.is_in() && function.role.is_shown()
    };
    let replaced: Vec<usize> = way.out.iter().filter(is_measured).copied().collect();
    locked.take_out(why, &way.out)?;
    let now = clock::ns_since_start(locked.segment.header(), clock::tsc());
    for &id in &replaced {
        locked.document.functions[id].out_ns = Some(now);
    }
    locked.document.replaced += replaced.len() as u64;
    for &id in &way.retired {
        locked.document.functions[id].state = State::Retired;
    }
    locked.document.give_up_sites(&way.given_up);
    Ok(())
}

/// The names of the functions among `ids` that use breakpoints.
pub(super) fn with_traps(document: &Document, ids: &[usize]) -> Vec<String> {
    let functions = ids.iter().map(|&id| &document.functions[id]);
    let trapped = functions.filter(|f| f.sites.iter().any(|s| s.trap));
    trapped.map(|f| f.name.clone()).collect()
}

/// Notes the time at which functions first came in. `now` is in nanoseconds since the session's
/// start.
pub(super) fn note_since(document: &mut Document, ids: &[usize], now: u64) {
    for &id in ids {
        let function = &mut document.functions[id];
        // A function that was in before has been laid out again.
        if function.generation == 0 && !function.remeasured {
            function.since_ns = Some(now);
        }
    }
}

/// Notes the functions without debug information about their values.
pub(super) fn note_bare(document: &mut Document, names: &[String]) {
    let notes = &mut document.notes;
    for note in names.iter().map(|name| bare(name)) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}
