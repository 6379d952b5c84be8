//! Putting probes in and taking them out, in stops of the target.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patcher::plan::Effects;
use patcher::select::Pattern;

use super::came::note_looked_in;
use super::decide::{Removal, decide, decide_removal, in_one_stop};
use super::elsewhere::{partly, shared};
use super::end::take_out_last;
use super::enders::{note_enders, replace_removed};
use super::execute::{Executed, note_bare};
use super::lending::stop_lending;
use super::locked::Locked;
use super::lost::note_replaced;
use super::points::note_points;
use super::published::publish_tables;
use super::refusing::forget_refusals;
use super::relaid::{function_of, without_edges};
use super::shown::by_shown_name;
use super::stack_scan::Stacks;
use super::tables::begin_epoch;
use super::traps::handle_traps;
use super::values::WantedValues;
use super::windows::give_up;
use super::witnesses::unfollowed;
use super::write::{Part, switch};
use super::{Changed, Selected, Selection, Session, SessionError, allowed, select_in};
use crate::segment::{FunctionDoc, Remeasure, Role, SchemaDoc};
use ipath_profile::clock;
use ipath_symbols::images;
use ipath_target::priority::Priority;
use ipath_target::process::Space;
use ipath_target::process::modules::{Module, modules};
use ipath_target::progress::Step;
use ipath_target::tracee::{CallCode, Stopped, pause, tracing};

/// The most attempts while a thread is in the way.
const ATTEMPTS: usize = 200;
/// The time limit of all attempts. Stopping thousands of threads takes seconds each time.
const LONGEST: Duration = Duration::from_secs(30);
/// How long threads run between attempts.
const PAUSE: Duration = Duration::from_millis(2);

impl Session {
    /// Looks patterns up in the process as it is now. The functions will measure the metrics of
    /// `remeasure`, or those of the session. A function is refused if one of the values cannot be
    /// read.
    ///
    /// # Errors
    /// The process cannot be read, has ended or has executed another program, or the metrics of
    /// `remeasure` do not fit.
    pub fn select(
        &self,
        patterns: &[Pattern],
        remeasure: Option<Remeasure>,
    ) -> Result<Selected, SessionError> {
        let schema = self.schema_of_new(remeasure.as_ref())?;
        let wanted = Effects {
            entry: true,
            exits: schema.needs_exits(),
        };
        let mut selected = select_in(&self.process, patterns, wanted)?;
        let wanted = WantedValues::of(schema.items(), self.document.by().as_ref())
            .and_all(self.document.keeps_single());
        selected.find_values(&wanted);
        selected.selection.remeasure = remeasure;
        Ok(selected)
    }

    /// The schema of functions that come in with this change of metrics, or without one.
    fn schema_of_new(&self, remeasure: Option<&Remeasure>) -> Result<SchemaDoc, SessionError> {
        let mut document = self.document.clone();
        let of = document.schema;
        let number = match remeasure {
            Some(change) => {
                let metrics = Remeasure::Set(change.metrics().to_vec());
                document.remeasure(of, &metrics, self.made_for())?
            }
            None => of,
        };
        Ok(document.schema_of(number).cloned().unwrap_or_default())
    }

    /// Instruments the selected functions. `why` describes the stop in the profile.
    ///
    /// # Errors
    /// The session cannot be locked, the process cannot be changed, or every function is refused.
    pub fn add(&mut self, why: &str, selected: Selected) -> Result<Changed, SessionError> {
        let Selected {
            space,
            modules,
            selection,
        } = selected;
        self.change(Some(space), |locked| {
            locked.add(why, &modules, selection, None)
        })
    }

    /// Takes out the probes of the functions with these ids.
    ///
    /// # Errors
    /// The session cannot be locked, or the process cannot be changed.
    pub fn remove(&mut self, ids: &[usize]) -> Result<Changed, SessionError> {
        self.change(None, |locked| locked.remove("remove", ids))
    }

    /// Makes a change under the lock, on the tracing thread. `space` is the address space in which
    /// the change was planned, if any. Fails like [`Self::locked`]; an error that may come of the
    /// end of the process is replaced by one that says so.
    pub(super) fn change<R: Send>(
        &mut self,
        space: Option<Arc<Space>>,
        change: impl FnOnce(&mut Locked<'_>) -> Result<R, SessionError> + Send,
    ) -> Result<R, SessionError> {
        let seen = space.clone();
        let changed = tracing(|| {
            let _priority = Priority::raise();
            self.locked(space, change)
        });
        changed.map_err(|error| match &seen {
            Some(space) => error.unless_gone(space),
            None => error,
        })
    }

    /// Ids of the functions that patterns select in these modules, ascending.
    fn matching_in(&self, patterns: &[Pattern], modules: &[Module]) -> BTreeSet<usize> {
        let mut ids = BTreeSet::new();
        let functions = self
            .document
            .measured()
            .filter(|(_, f)| f.role.is_measured());
        for (id, function) in functions {
            let Some(doc) = self.document.modules.get(function.module) else {
                continue;
            };
            let Some(module) = modules.iter().find(|m| m.path == doc.path) else {
                continue;
            };
            let Ok(image) = images::of_module(module) else {
                continue;
            };
            let names = |pattern: &Pattern| {
                let name = module.file_name();
                let selected = || image.select(pattern, name, doc.bias).into_iter();
                module.is_called(|name| pattern.module_matches(name))
                    && selected().any(|f| f.range.start == function.address)
            };
            if patterns.iter().any(names) {
                ids.insert(id);
            }
        }
        ids
    }

    /// The ids of the session's measured functions that match one of `patterns`.
    ///
    /// # Errors
    /// The process cannot be read, has ended or has executed another program.
    pub fn matching(&self, patterns: &[Pattern]) -> Result<Vec<usize>, SessionError> {
        let space = Space::open(&self.process)?;
        let modules = modules(&self.process, &space.maps()?);
        let mut ids = self.matching_in(patterns, &modules);
        if ids.is_empty() {
            let opened: Vec<_> = modules.iter().flat_map(images::of_module).collect();
            let opened = opened.iter().map(|image| &**image);
            let shown = patterns
                .iter()
                .flat_map(|p| by_shown_name(p, opened.clone()));
            ids = self.matching_in(&shown.collect::<Vec<Pattern>>(), &modules);
        }
        if ids.is_empty() {
            space.check()?;
        }
        Ok(ids.into_iter().collect())
    }
}

impl Locked<'_> {
    /// Instruments the selected functions. `stopped` are the threads of a process that is already
    /// stopped and stays so. Fails if every function is refused, or if the process cannot be read
    /// or changed.
    pub(super) fn add(
        &mut self,
        why: &str,
        modules: &[Module],
        selection: Selection,
        stopped: Option<&mut Stopped>,
    ) -> Result<Changed, SessionError> {
        if selection.unplanned > 0 {
            return Err(SessionError::TooMany);
        }
        if self.document.callers_only && !selection.points.is_empty() {
            return Err(SessionError::OnlyFunctions);
        }
        note_replaced(&mut self.document, modules);
        note_looked_in(&mut self.document, modules);
        publish_tables(self, modules)?;
        let maps = || self.space.maps_with_heap();
        let change = decide(&self.document, selection, modules, &maps, self.made_for())?;
        let executed = change.execute(self, why, modules, stopped)?;
        self.record(executed, modules)
    }

    /// Records an executed change in the document.
    fn record(&mut self, executed: Executed, modules: &[Module]) -> Result<Changed, SessionError> {
        let Executed { ids, mut changed } = executed;
        if let Some(ids) = ids {
            let document = &mut self.document;
            forget_refusals(document);
            note_enders(document);
            note_points(document);
            changed.unfollowed = unfollowed(document, modules);
            note_bare(document, &changed.bare);
            changed.partly = partly(document, &ids);
            changed.shared = shared(document, &ids);
        }
        self.segment.write_document(&self.document)?;
        Ok(changed)
    }

    /// Patches functions in short stops. Functions with an obstacle are refused. Fails if every
    /// function is refused, or if the process cannot be changed.
    pub(super) fn put_in(
        &mut self,
        why: &str,
        mut ids: Vec<usize>,
        mut stopped: Option<&mut Stopped>,
        changed: &mut Changed,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(&self.space);
        // Witnesses of ends come before the functions whose calls they end.
        ids.sort_by_key(|&id| self.document.functions[id].role.is_shown());
        while !ids.is_empty() {
            let rest = ids.split_off(in_one_stop(&self.document, ids.iter()));
            let mut batch = std::mem::replace(&mut ids, rest);
            while !batch.is_empty() {
                // The code that was found before may have been patched.
                let code = CallCode::find(&self.process, &space.maps()?, space.memory())?;
                let done = match stopped.as_deref_mut() {
                    Some(stopped) => {
                        let mut stacks = self.view().stacks(space.memory())?;
                        handle_traps(self, &code, stopped, &batch)?;
                        self.view()
                            .write_in(stopped, &mut stacks, (&batch, Part::Whole))
                    }
                    None => self.in_stop(why, |locked, stopped, stacks| {
                        handle_traps(locked, &code, stopped, &batch)?;
                        locked
                            .view()
                            .write_in(stopped, stacks, (&batch, Part::Whole))
                    }),
                };
                match done {
                    Ok(()) => break,
                    Err(SessionError::InTheWay(what)) => give_up(self, what, &mut batch, changed)?,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes out the probes of the functions with these ids, and everything that these functions
    /// alone need. Writes the document. Ignores functions that are out. `why` describes the stops
    /// in the profile. Fails if the process cannot be changed.
    pub(super) fn remove(&mut self, why: &str, ids: &[usize]) -> Result<Changed, SessionError> {
        let ids = self.take_out_wanted(why, ids)?;
        self.make_up_for(why, &ids)?;
        let name = |&id: &usize| self.document.functions[id].title();
        Ok(Changed {
            functions: ids.iter().map(name).collect(),
            ..Changed::default()
        })
    }

    /// The first part of [`Self::remove`], which takes out the probes. Returns the ids of the
    /// functions among `ids` that were in. Does not write the document.
    pub(super) fn take_out_wanted(
        &mut self,
        why: &str,
        ids: &[usize],
    ) -> Result<Vec<usize>, SessionError> {
        let Removal { ids, out } = decide_removal(&self.document, ids);
        self.take_out(why, &out)?;
        if self.document.callers_only {
            // From here on, no remembered call is under one of these functions.
            begin_epoch(self)?;
        }
        let now = clock::ns_since_start(self.segment.header(), clock::tsc());
        for &id in &ids {
            self.document.functions[id].out_ns = Some(now);
        }
        Ok(ids)
    }

    /// The second part of [`Self::remove`]: adds what other functions need in place of those with
    /// these ids, and writes the document.
    pub(super) fn make_up_for(&mut self, why: &str, ids: &[usize]) -> Result<(), SessionError> {
        replace_removed(self, ids)?;
        self.restore_calls(ids)?;
        self.segment.write_document(&self.document)?;
        take_out_last(self, why)
    }

    /// Restores the patches of functions whose edges (`ids`) are no longer counted, and whose calls
    /// are still measured. Fails if the process cannot be changed.
    fn restore_calls(&mut self, ids: &[usize]) -> Result<(), SessionError> {
        let counts = |&id: &usize| self.document.functions[id].role == Role::Edges;
        if !ids.iter().any(counts) {
            return Ok(());
        }
        let modules = &modules(&self.process, &self.space.maps()?);
        let allowed = allowed(&self.process, modules, false);
        let function = |row: &FunctionDoc| function_of(&self.document, modules, row);
        let candidates = without_edges(&self.document, ids, allowed, function);
        if candidates.is_empty() {
            return Ok(());
        }
        let selection = Selection::of(candidates, allowed);
        self.add("remove", modules, selection, None).map(drop)
    }

    /// Takes out the probes of exactly the functions with these ids, in short stops. `why`
    /// describes the stops in the profile. Fails if the process cannot be changed.
    pub(super) fn take_out(&mut self, why: &str, ids: &[usize]) -> Result<(), SessionError> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut functions = self.document.functions.iter().enumerate();
        // If a whole group leaves, none of its calls ends at a tail call, or counts as unwound.
        if functions.any(|(id, function)| function.lending != 0 && !ids.contains(&id)) {
            stop_lending(self, ids)?;
        }
        // From here on, no call is counted whose entry would be seen and whose return would not.
        switch(self, ids, false)?;
        let mut ids = ids.to_vec();
        ids.sort_by_key(|&id| (self.document.functions[id].role.is_shown(), id));
        while !ids.is_empty() {
            let batch = ids.split_off(ids.len() - in_one_stop(&self.document, ids.iter().rev()));
            self.in_stop(why, |locked, stopped, stacks| {
                locked.view().write_out(stopped, stacks, &batch)
            })?;
        }
        Ok(())
    }

    /// Runs `work` with all threads stopped. After an error that may disappear by itself, such as a
    /// thread in the way, pauses and tries again.
    pub(super) fn in_stop(
        &mut self,
        why: &str,
        mut work: impl FnMut(&mut Self, &mut Stopped, &mut Stacks) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(&self.space);
        let mut attempts = 0;
        let begun = Instant::now();
        loop {
            let mut stacks = self.view().stacks(space.memory())?;
            let mut stopped = self.stop_all()?;
            let step = Step::begin(format!("{why}, with the process stopped"));
            let result = work(self, &mut stopped, &mut stacks);
            drop(step);
            let duration = stopped.resume()?;
            self.note_stop(why, duration);
            attempts += 1;
            match result {
                Err(error)
                    if error.passes() && attempts < ATTEMPTS && begun.elapsed() < LONGEST =>
                {
                    pause(PAUSE);
                }
                other => return other,
            }
        }
    }
}
