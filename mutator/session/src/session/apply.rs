//! Putting probes in and taking them out: the moments the target is stopped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patcher::Bias;
use patcher::plan::{Effects, RefuseReason};
use patcher::select::Pattern;

use super::bare;
use super::claims::Claims;
use super::elsewhere::{partly, shared};
use super::locked::Locked;
use super::lost::is_same_file;
use super::refusal::Refusal;
use super::remeasure::Turn;
use super::stack_scan::Stacks;
use super::witnesses::{put_moves_first, witnesses};
use super::write::Part;
use super::{Candidate, Changed, Selected, Selection, Session, SessionError, select_in};
use crate::segment::{Forking, ModuleDoc, RefusedDoc, Remeasure, Role, SchemaDoc, Witness};
use ipath_profile::clock;
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::{self, OpenImage};
use ipath_target::priority::Priority;
use ipath_target::process::Space;
use ipath_target::process::modules::{Module, modules};
use ipath_target::progress::Step;
use ipath_target::tracee::{CallCode, Stopped, pause, tracing};

/// How often it is tried again when a thread is in the way for the moment.
const ATTEMPTS: usize = 200;
/// The time limit: stopping thousands of threads takes seconds each time.
const LONGEST: Duration = Duration::from_secs(30);
/// Why functions come in that a session begins with.
pub(super) const AT_START: &str = "attach";
/// How long threads run on between.
const PAUSE: Duration = Duration::from_millis(2);

impl Session {
    /// Looks patterns up in the process as it is now, to measure what they name as `remeasure` says, or else as the
    /// session does. A function with a value among that which cannot be read is refused.
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
        selected.find_values(&schema.items());
        selected.selection.remeasure = remeasure;
        Ok(selected)
    }

    /// The schema of functions that come in.
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

    /// Instruments what was selected.
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

    /// Takes out the probes of functions by id.
    pub fn remove(&mut self, ids: &[usize]) -> Result<Changed, SessionError> {
        self.change(None, |locked| locked.remove(ids))
    }

    /// Does a change under the lock, by a thread that traces.
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

    /// Ids of the functions of the session that patterns name.
    pub fn matching(&self, patterns: &[Pattern]) -> Result<Vec<usize>, SessionError> {
        let space = Space::open(&self.process)?;
        let modules = modules(&self.process, &space.maps()?);
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
        if ids.is_empty() {
            space.check()?;
        }
        Ok(ids.into_iter().collect())
    }
}

impl Locked<'_> {
    /// Instruments what was selected; `stopped` are the threads of a process that is stopped
    /// already and stays so.
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
        self.note_replaced(modules);
        self.note_looked_in(modules);
        self.publish_tables(modules)?;
        let mut changed = Changed::default();
        let mut selection = selection;
        let is_bare = |c: &&Candidate| c.is_bare && c.refused().is_none();
        let bare = selection.candidates.iter().filter(is_bare);
        changed.bare = bare.map(|c| c.name.clone()).collect();
        let before = self.measures();
        let is_other = selection.remeasure.is_some();
        let mut turns = self.decide(&mut selection)?;
        let (candidates, known) = self.in_turn(modules, selection, &mut turns, &mut changed)?;
        self.take_memory(&candidates)?;
        self.make_way_for(why, &candidates)?;
        let (mut ids, fresh) = self.admit_all(modules, candidates, &turns, &mut changed);
        ids.extend(known);
        ids.extend(self.carriers_of(&ids));
        let mut stopped = stopped;
        let prepared = self.prepare(modules, fresh, &ids, stopped.as_deref_mut(), &mut changed)?;
        ids.extend(prepared);
        let turns = self.possible(turns);
        let turns = self.come_in_changed(turns, &ids);
        if let Some(refusal) = changed.refusal().filter(|_| turns.is_empty()) {
            self.put_back(before);
            self.segment.write_document(&self.document)?;
            return Err(refusal);
        }
        if ids.is_empty() && turns.is_empty() {
            self.segment.write_document(&self.document)?;
            return Ok(changed);
        }
        if is_other {
            self.segment.write_document(&self.document)?;
            self.write_schemas()?;
        }
        changed.trapped = self.with_traps(&ids);
        self.fill_traps(&ids)?;
        // Where the trampolines are by now.
        if self.document.quiet {
            self.publish_maps()?;
        }
        if why != AT_START {
            self.note_since(&ids);
        }
        self.switch(&ids, true)?;
        // Written down before the first byte changes: whoever finds this session half done can
        // take the bytes out again.
        self.segment.write_document(&self.document)?;
        if let Err(error) = self.put_in(why, ids.clone(), stopped, &mut changed) {
            // What is in of it comes out again, and nothing is counted that would be half.
            let _ = self.take_out(why, &ids);
            self.segment.write_document(&self.document)?;
            return Err(error);
        }
        self.turn(why, turns, &mut changed)?;
        self.switch_lending()?;
        self.forget_refusals();
        self.note_enders();
        self.note_points();
        changed.unfollowed = self.unfollowed(modules);
        self.note_bare(&changed.bare);
        changed.partly = partly(&self.document, &ids);
        changed.shared = shared(&self.document, &ids);
        self.segment.write_document(&self.document)?;
        Ok(changed)
    }

    /// Notes of whose values nothing is known.
    fn note_bare(&mut self, names: &[String]) {
        let notes = &mut self.document.notes;
        for note in names.iter().map(|name| bare(name)) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }

    /// What was selected and the witnesses it needs, in the order in which they are put in, and the ids of points that have been
    /// in the session before.
    fn in_turn(
        &mut self,
        modules: &[Module],
        selection: Selection,
        turns: &mut Vec<Turn>,
        changed: &mut Changed,
    ) -> Result<(Vec<Candidate>, Vec<usize>), SessionError> {
        let mut candidates = selection.candidates;
        let known = self.join_points(modules, &mut candidates, selection.points, changed);
        self.plan_exits(&mut candidates, turns, changed);
        let mut witnesses = witnesses(modules, self.sees_ends(&candidates), selection.allowed);
        witnesses.retain(|c| self.document.needs(c.role));
        let witnesses = self.but_measured(&mut candidates, witnesses);
        candidates.extend(witnesses);
        candidates.extend(self.enders(modules, &candidates, selection.allowed));
        self.plan_for_room(&mut candidates)?;
        // Those with puns last: what a pun depends on is better changed by the function that it belongs to. Points after the
        // functions that tell of what goes on. And what nobody has asked for after all others.
        let has_puns = |c: &Candidate| c.plan.sites.iter().any(|s| s.pun.is_some());
        candidates.sort_by_key(|c| (c.role == Role::Ender, c.role == Role::Carrier, has_puns(c)));
        put_moves_first(&mut candidates);
        Ok((candidates, known))
    }

    /// The ids of candidates that were in the session before and are not in the target now, and those that are new
    /// to the session. The others are refused, or in already.
    fn admit_all(
        &mut self,
        modules: &[Module],
        candidates: Vec<Candidate>,
        turns: &[Turn],
        changed: &mut Changed,
    ) -> (Vec<usize>, Vec<Candidate>) {
        let (mut ids, mut fresh) = (Vec::new(), Vec::new());
        let mut claims = Claims::of(&self.document);
        for mut candidate in candidates {
            let known = self.known(&candidate);
            let refusal = match candidate.plan.refused() {
                Some((_, reason)) => Some(reason),
                None if candidate.unreadable.is_some() => None,
                None if known.is_some() || self.admit(&mut claims, &mut candidate) => None,
                None => Some(RefuseReason::OverlapsFunction),
            };
            let refusal = refusal.map(Refusal::from);
            if let Some(reason) = refusal.or_else(|| candidate.unreadable()) {
                self.refuse(modules, &candidate, reason, changed);
                continue;
            }
            let Some(id) = known else {
                fresh.push(candidate);
                continue;
            };
            let is_in = self.document.functions[id].is_in();
            let is_turned = turns.iter().any(|turn| turn.id == id);
            if candidate.role.is_measured() && !(is_in && is_turned) {
                let names = match is_in {
                    true => &mut changed.already,
                    false => &mut changed.functions,
                };
                names.push(candidate.name);
            }
            if !is_in {
                ids.push(id);
            }
        }
        (ids, fresh)
    }

    /// The names of those functions that breakpoints lead to.
    fn with_traps(&self, ids: &[usize]) -> Vec<String> {
        let functions = ids.iter().map(|&id| &self.document.functions[id]);
        let trapped = functions.filter(|f| f.sites.iter().any(|s| s.trap));
        trapped.map(|f| f.name.clone()).collect()
    }

    /// Forgets what was in the way of functions that are in now.
    fn forget_refusals(&mut self) {
        let document = &mut self.document;
        let functions = &document.functions;
        let is_in = |r: &RefusedDoc| {
            let mut of_place = functions
                .iter()
                .filter(|f| f.module == r.module && f.address == r.address);
            of_place.any(|f| f.is_in() && f.role == r.role)
        };
        document.refused.retain(|r| !is_in(r));
    }

    /// Puts the probes of functions in, in stops of which each is short; those that something is in the way
    /// of are refused.
    fn put_in(
        &mut self,
        why: &str,
        mut ids: Vec<usize>,
        mut stopped: Option<&mut Stopped>,
        changed: &mut Changed,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(&self.space);
        let code = CallCode::find(&self.process, &space.maps()?, space.memory())?;
        // Who tells of calls that end without a return comes before those whose calls can.
        ids.sort_by_key(|&id| self.document.functions[id].role.is_shown());
        while !ids.is_empty() {
            let rest = ids.split_off(self.in_one_stop(ids.iter()));
            let mut batch = std::mem::replace(&mut ids, rest);
            while !batch.is_empty() {
                let done = match stopped.as_deref_mut() {
                    Some(stopped) => {
                        let mut stacks = self.stacks(space.memory())?;
                        self.handle_traps(&code, stopped, &batch)?;
                        self.write_in(stopped, &mut stacks, (&batch, Part::Whole))
                    }
                    None => self.in_stop(why, |locked, stopped, stacks| {
                        locked.handle_traps(&code, stopped, &batch)?;
                        locked.write_in(stopped, stacks, (&batch, Part::Whole))
                    }),
                };
                match done {
                    Ok(()) => break,
                    Err(SessionError::InTheWay(what)) => self.give_up(what, &mut batch, changed)?,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// How many of these functions are patched in one stop, which lasts some microseconds for each site.
    pub(super) fn in_one_stop<'i>(&self, ids: impl Iterator<Item = &'i usize>) -> usize {
        const SITES: usize = 1000;
        let mut sites = 0;
        let fits = |id: &&usize| {
            sites += self.document.functions[**id].sites.len();
            sites <= SITES
        };
        ids.take_while(fits).count().max(1)
    }

    pub(super) fn remove(&mut self, ids: &[usize]) -> Result<Changed, SessionError> {
        let functions = &self.document.functions;
        let is_in = |id: &usize| {
            functions
                .get(*id)
                .is_some_and(|f| f.is_in() && f.role.is_shown())
        };
        let ids: Vec<usize> = ids.iter().copied().filter(is_in).collect();
        let mut taken = ids.clone();
        taken.extend(self.idle_witnesses(&ids));
        taken.extend(self.idle_enders(&ids));
        taken.extend(self.idle_carriers(&ids));
        taken.sort_unstable();
        taken.dedup();
        self.take_out("remove", &taken)?;
        let now = clock::ns_since_start(self.segment.header(), clock::tsc());
        for &id in &ids {
            self.document.functions[id].out_ns = Some(now);
        }
        self.replace(&ids)?;
        self.segment.write_document(&self.document)?;
        self.take_out_last("remove")?;
        let name = |&id: &usize| self.document.functions[id].name.clone();
        Ok(Changed {
            functions: ids.iter().map(name).collect(),
            ..Changed::default()
        })
    }

    /// The witnesses, where nothing stays in that they serve once `leaving` is out. A thread may still be amid the recording of a call then:
    /// what sees to children of such stays ([`Locked::take_out_last`]).
    pub(super) fn idle_witnesses(&self, leaving: &[usize]) -> Vec<usize> {
        let functions = self.document.functions.iter().enumerate();
        let active = functions.filter(|(id, f)| f.is_in() && !leaving.contains(id));
        let (witnesses, others): (Vec<_>, Vec<_>) = active.partition(|(_, f)| !f.role.is_shown());
        let has_exits = others.iter().any(|(_, f)| f.has_exits());
        // Where calls are only counted, nobody needs to know that they have ended.
        let waits = !self.document.pending.is_empty();
        let is_idle = |role: Role| match (others.is_empty(), role.witness()) {
            // What comes of libraries that are awaited is to be seen.
            (true, Some(Witness::Forks(Forking::Copies))) => false,
            (true, Some(witness)) => !(waits && witness.is_for_counts()),
            (true, None) => true,
            (false, Some(witness)) => !has_exits && witness.tells_of_ends(),
            (false, None) => false,
        };
        let idle = witnesses.into_iter().filter(|(_, f)| is_idle(f.role));
        idle.map(|(id, _)| id).collect()
    }

    pub(super) fn take_out(&mut self, why: &str, ids: &[usize]) -> Result<(), SessionError> {
        if ids.is_empty() {
            return Ok(());
        }
        self.stop_lending(ids)?;
        // From here on no call is counted that would be seen to enter and not to return.
        self.switch(ids, false)?;
        let mut ids = ids.to_vec();
        ids.sort_by_key(|&id| (self.document.functions[id].role.is_shown(), id));
        while !ids.is_empty() {
            let batch = ids.split_off(ids.len() - self.in_one_stop(ids.iter().rev()));
            self.in_stop(why, |locked, stopped, stacks| {
                locked.write_out(stopped, stacks, &batch)
            })?;
        }
        Ok(())
    }

    /// Runs `work` with all threads stopped, and again after a while as long as it answers that a
    /// thread is in its way.
    pub(super) fn in_stop(
        &mut self,
        why: &str,
        mut work: impl FnMut(&mut Self, &mut Stopped, &mut Stacks) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(&self.space);
        let mut attempts = 0;
        let begun = Instant::now();
        loop {
            let mut stacks = self.stacks(space.memory())?;
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

    pub(super) fn known(&self, candidate: &Candidate) -> Option<usize> {
        if candidate.exits_of.is_some() {
            return None;
        }
        let place = Some(candidate.place());
        self.document.functions.iter().position(|f| {
            let is_same = f.role == candidate.role && !f.is_retired();
            // Others may carry other points.
            is_same && f.role != Role::Carrier && self.document.place_of(f) == place
        })
    }

    /// Notes down that a function cannot be instrumented; nobody has asked for a witness.
    pub(super) fn refuse(
        &mut self,
        modules: &[Module],
        candidate: &Candidate,
        reason: Refusal,
        changed: &mut Changed,
    ) {
        let known = candidate.exits_of.or_else(|| self.known(candidate));
        let is_in = known.is_some_and(|id| self.document.functions[id].is_in());
        let function = candidate.role.is_measured().then(|| {
            let start = candidate.plan.function.range.start;
            (&candidate.name, start, Role::Measured)
        });
        let points = candidate
            .points
            .iter()
            .map(|p| (&p.name, p.at, Role::Point));
        for (name, address, role) in function.into_iter().chain(points) {
            let refused = (name.clone(), reason.clone());
            if is_in && role.is_measured() {
                changed.unchanged.push(refused);
                continue;
            }
            changed.refused.push(refused);
            let module = self.module_id(modules, candidate);
            self.add_refused(RefusedDoc {
                name: name.clone(),
                module,
                address,
                reason: reason.to_string(),
                role,
            });
        }
    }

    /// Notes of functions that have never been in when that is.
    fn note_since(&mut self, ids: &[usize]) {
        let now = clock::ns_since_start(self.segment.header(), clock::tsc());
        for &id in ids {
            let function = &mut self.document.functions[id];
            // One that was in before has been laid out anew.
            if function.generation == 0 && !function.remeasured {
                function.since_ns = Some(now);
            }
        }
    }

    /// Notes that a function of the session is refused.
    pub(super) fn refuse_known(&mut self, id: usize, reason: RefuseReason) {
        let function = &self.document.functions[id];
        self.add_refused(RefusedDoc {
            name: function.name.clone(),
            module: function.module,
            address: function.address,
            reason: reason.to_string(),
            role: function.role,
        });
    }

    pub(super) fn add_refused(&mut self, refused: RefusedDoc) {
        if !self.document.refused.contains(&refused) {
            self.document.refused.push(refused);
        }
    }

    pub(super) fn module_id(&mut self, modules: &[Module], candidate: &Candidate) -> usize {
        self.id_of_module(&modules[candidate.module], candidate.image, candidate.bias)
    }

    /// The number of a module, which it gets where it has none yet.
    pub(super) fn id_of_module(&mut self, module: &Module, image: &OpenImage, bias: Bias) -> usize {
        let known = |m: &ModuleDoc| {
            m.path == module.path && m.bias == bias && is_same_file(m, module, image)
        };
        if let Some(id) = self.document.modules.iter().position(known) {
            return id;
        }
        self.document.modules.push(ModuleDoc {
            path: module.path.clone(),
            build_id: image.image.build_id().map(hex),
            bias,
            code: module.code_range(),
            file: module.file(),
            stamp: image.stamp(),
            is_gone: false,
        });
        self.document.modules.len() - 1
    }
}
