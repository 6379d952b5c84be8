//! Patterns that wait for the library that contains their functions.
//!
//! The loader calls `_dl_debug_state` after it has mapped libraries and before any of their code
//! runs. Every session has a probe there. If patterns wait, the runtime asks the watching command
//! to inspect the new libraries, and continues once their functions are patched.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use abi::image::{Parameters, SYMBOL_PARAMETERS};
use patcher::Avma;
use patcher::function::FunctionKind;
use patcher::plan::Effects;
use patcher::select::Pattern;

use super::locked::Locked;
use super::select::{Selection, select};
use super::values::WantedValues;
use super::{Changed, Selected, Session, SessionError, allowed, slices};
use crate::segment::{Document, FunctionDoc, PendingDoc, Role, SchemaDoc, Witness};
use ipath_profile::clock;
use ipath_symbols::images;
use ipath_target::process::identity::FileId;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Pid, Process, Space};

/// How long the watching command is taken to be present after a look, in seconds.
const THERE: u64 = 5;
/// How long the watching command is taken to be present after the beginning of a look, in seconds.
pub(super) const LOOKING: u64 = 60;
/// How long it is taken to be present after the creation of a session, in seconds.
pub(super) const AT_FIRST: u64 = 10;

/// The inspected parts of a process: the address and file of each module, and the searches for
/// stack switches.
#[derive(Default)]
pub(super) struct LookedThrough(HashSet<(Avma, FileId)>, slices::LookedThrough);

impl Session {
    /// Instruments the selected functions. The patterns wait for further functions they name.
    ///
    /// # Errors
    /// As [`Session::add`]. Also if the process's loader does not report libraries, or if the
    /// runtime must not wait.
    pub fn add_awaiting(
        &mut self,
        why: &str,
        selected: Selected,
        patterns: &[Pattern],
    ) -> Result<Changed, SessionError> {
        let Selected {
            space,
            modules,
            selection,
        } = selected;
        self.change(Some(space), |locked| {
            let awaited = locked.document.pending.clone();
            let are_in = locked.document.active();
            let met = selection.met(patterns);
            // Before the functions are patched, so that libraries loaded meanwhile are seen.
            await_patterns(locked, patterns, &met)?;
            let added = locked.add(why, &modules, selection, None);
            let added = added.and_then(|changed| locked.document.check_awaits().map(|()| changed));
            if added.is_err() {
                locked.document.pending = awaited;
                tell_whether_awaited(locked)?;
                let mut new = locked.document.active();
                new.retain(|id| !are_in.contains(id));
                locked.remove("remove", &new)?;
                return added;
            }
            // Libraries may have been loaded since the patterns were looked up.
            locked.segment.note_load();
            added
        })
    }

    /// Removes the probes of the functions with these ids, and `patterns` from the pending
    /// patterns. Returns the patterns that were pending.
    ///
    /// # Errors
    /// The session cannot be locked, or the process cannot be changed. No pattern is removed then.
    pub fn remove_awaited(
        &mut self,
        ids: &[usize],
        patterns: &[Pattern],
    ) -> Result<(Vec<String>, Changed), SessionError> {
        self.change(None, |locked| {
            let is_one = |p: &PendingDoc| patterns.iter().any(|one| one.text() == p.pattern);
            let pending = locked.document.pending.clone();
            let (gone, kept): (Vec<_>, Vec<_>) = pending.iter().cloned().partition(is_one);
            locked.document.pending = kept;
            let removed = locked.remove("remove", ids);
            if removed.is_err() {
                locked.document.pending = pending;
            }
            tell_whether_awaited(locked)?;
            let gone = gone.into_iter().map(|p| p.pattern).collect();
            removed.map(|changed| (gone, changed))
        })
    }

    /// If patterns wait, inspects the libraries loaded since the last time. Then releases the
    /// runtime, which waits for it. Fails if the functions cannot be instrumented. The runtime is
    /// released then too.
    pub(super) fn look_at_loads(&mut self, known: &mut LookedThrough) -> Result<(), SessionError> {
        self.refresh()?;
        if self.document.is_waited_in() {
            self.note_watched(THERE);
        }
        if self.document.pending.is_empty() {
            return self.follow_slices(&mut known.1);
        }
        let Some(loads) = self.segment.unseen_loads() else {
            return Ok(());
        };
        self.note_watched(LOOKING);
        let armed = self.arm_at_last(known);
        // Includes libraries that were loaded before the measured ones.
        let followed = self.follow_slices(&mut known.1);
        // Whatever the outcome, no thread has to wait any longer.
        self.segment.note_loads_seen(loads);
        self.note_watched(THERE);
        armed.and(followed)
    }

    /// Records that this command watches the session, for the next `seconds`.
    pub(super) fn note_watched(&self, seconds: u64) {
        let hz = self.segment.header().clock_hz.load(Ordering::Relaxed);
        let by = if self.process.inner_pid() == self.process.pid.0 {
            u64::from(std::process::id())
        } else {
            0
        };
        let until = clock::tsc().saturating_add(hz.saturating_mul(seconds));
        self.segment.note_watched(until, by);
    }

    /// True if a watching command is taken to be present.
    pub fn is_watched(&self) -> bool {
        let header = self.segment.header();
        let by = header.watched_by.load(Ordering::Relaxed);
        let is_there = || by == 0 || Process::find(Pid(by as i32)).is_ok();
        header.watched_until.load(Ordering::Relaxed) > clock::tsc() && is_there()
    }

    /// Records that no command is watching.
    pub(super) fn note_unwatched(&self) {
        self.segment.note_watched(0, 0);
    }

    /// Instruments the functions of new modules that waiting patterns name. Tries again if
    /// something is in the way.
    fn arm_at_last(&mut self, known: &mut LookedThrough) -> Result<Changed, SessionError> {
        const TRIES: usize = 3;
        for _ in 1..TRIES {
            match self.arm(known) {
                Ok(changed) => return Ok(changed),
                // Inspect all modules again.
                Err(_) => known.0.clear(),
            }
        }
        self.arm(known)
    }

    /// Instruments the functions of new modules that waiting patterns name.
    fn arm(&mut self, known: &mut LookedThrough) -> Result<Changed, SessionError> {
        let space = Arc::new(Space::open(&self.process)?);
        let all = modules(&self.process, &space.maps()?);
        let place = |module: &Module| (module.code_range().start, module.file());
        let now: HashSet<(Avma, FileId)> = all.iter().map(place).collect();
        if !self.lost(&space)?.is_empty() {
            // A module has been replaced by another one at the same address.
            known.0.clear();
        }
        images::forget_changed(&all);
        let new: Vec<Module> = all
            .into_iter()
            .filter(|module| !known.0.contains(&place(module)))
            .collect();
        // An unloaded module may come back, at any address.
        known.0 = now;
        if new.is_empty() {
            return Ok(Changed::default());
        }
        let texts = self.document.pending.iter().map(|p| &p.pattern);
        let patterns: Vec<Pattern> = texts.filter_map(|text| Pattern::parse(text).ok()).collect();
        let schema = self.document.schema_of(self.document.schema);
        let wanted = Effects {
            entry: true,
            exits: schema.is_some_and(SchemaDoc::needs_exits),
        };
        let items = schema.map(SchemaDoc::items).unwrap_or_default();
        let allowed = allowed(&self.process, &new, false);
        let mut selection = select(&new, &patterns, wanted, allowed, true);
        // Their resolvers cannot run before the library has been relocated.
        let is_direct = |f: FunctionKind| f != FunctionKind::Ifunc;
        selection
            .candidates
            .retain(|c| is_direct(c.plan.function.kind));
        let met = selection.met(&patterns);
        let mut selected = Selected {
            space: Arc::clone(&space),
            modules: new,
            selection,
        };
        let wanted = WantedValues::of(items, self.document.by().as_ref())
            .and_all(self.document.keeps_single());
        selected.find_values(&wanted);
        let Selected {
            modules, selection, ..
        } = selected;
        self.change(Some(space), |locked| {
            add_pending(locked, &modules, selection, &met)
        })
    }
}

impl Document {
    /// True if this pattern waits for libraries.
    pub fn is_awaited(&self, pattern: &Pattern) -> bool {
        let is_it = |p: &PendingDoc| p.pattern == pattern.text();
        self.pending.iter().any(is_it)
    }

    /// Returns an error if patterns cannot wait in this session.
    pub(super) fn check_awaits(&self) -> Result<(), SessionError> {
        if self.quiet {
            let why = "patterns cannot wait for libraries, because the runtime makes no system \
                call in it: name the functions once their library is loaded";
            return Err(SessionError::Held(why.to_owned()));
        }
        let tells = |f: &FunctionDoc| f.role == Role::Witness(Witness::Loads) && f.is_in();
        if self.functions.iter().any(tells) {
            Ok(())
        } else {
            let why = "patterns cannot wait for libraries, because its loader does not report \
                them (_dl_debug_state): name the functions once their library is loaded";
            Err(SessionError::Held(why.to_owned()))
        }
    }
}

/// Adds patterns to those that wait for libraries, and marks the patterns `met` as matched.
fn await_patterns(
    locked: &mut Locked<'_>,
    patterns: &[Pattern],
    met: &[String],
) -> Result<(), SessionError> {
    for pattern in patterns {
        if !locked.document.is_awaited(pattern) {
            let new = PendingDoc::of(pattern.text());
            locked.document.pending.push(new);
        }
    }
    note_met(&mut locked.document, met);
    tell_whether_awaited(locked)
}

/// Marks the patterns `met` as matched.
pub(super) fn note_met(document: &mut Document, met: &[String]) {
    for pending in &mut document.pending {
        pending.is_met |= met.contains(&pending.pattern);
    }
}

/// Writes the document, and tells the runtime whether anything is awaited. Fails if either cannot
/// be written.
pub(super) fn tell_whether_awaited(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    locked.segment.write_document(&locked.document)?;
    set_awaits(locked, !locked.document.pending.is_empty())
}

/// Makes the runtime release threads that wait for libraries to be inspected. No further thread
/// waits. Fails if the runtime's memory cannot be written.
pub(super) fn let_loads_go(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    if locked.document.pending.is_empty() {
        Ok(())
    } else {
        set_awaits(locked, false)
    }
}

/// Makes the runtime wait, or no longer wait, for the command when libraries are loaded.
fn set_awaits(locked: &mut Locked<'_>, awaits: bool) -> Result<(), SessionError> {
    let at = locked.symbol(SYMBOL_PARAMETERS)?.plus(Parameters::AWAITS);
    locked.write_own(&[(at, u32::from(awaits).to_le_bytes().to_vec())])
}

/// Instruments selected functions of new modules, and marks the patterns `met` as matched.
fn add_pending(
    locked: &mut Locked<'_>,
    modules: &[Module],
    selection: Selection,
    met: &[String],
) -> Result<Changed, SessionError> {
    note_met(&mut locked.document, met);
    locked.add("load", modules, selection, None)
}
