//! Putting probes in and taking them out: the moments the target is stopped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use patcher::emit::{Emitted, Place};
use patcher::plan::{Effects, RefuseReason, Tactic};
use patcher::select::Pattern;
use patcher::{Avma, Bias};

use super::claims::Claims;
use super::elsewhere::partly;
use super::locked::Locked;
use super::place::Places;
use super::reapers::{put_moves_first, reapers};
use super::stack_scan::Stacks;
use super::{Candidate, Changed, Selected, Selection, Session, SessionError, select_in};
use crate::images;
use crate::process::modules::{Module, modules};
use crate::process::{Mapping, Space};
use crate::segment::{
    FunctionDoc, Journal, ModuleDoc, RefusedDoc, RegionDoc, SegmentError, SiteDoc,
};
use crate::tracee::{CallCode, Priority, Remote, Stopped, TraceeError, tracing};

/// How often it is tried again when a thread is where bytes would be overwritten.
const ATTEMPTS: usize = 200;
/// How long threads run on between.
const PAUSE: Duration = Duration::from_millis(2);

impl Session {
    /// Which probe points the session's metrics need.
    pub fn wanted(&self) -> Effects {
        Effects {
            entry: true,
            exits: self.document.metrics.len() > 1,
        }
    }

    /// Looks patterns up in the process as it is now.
    pub fn select(&self, patterns: &[Pattern]) -> Result<Selected, SessionError> {
        select_in(&self.process, patterns, self.wanted())
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
        tracing(|| {
            let _priority = Priority::raise();
            self.locked(space, change)
        })
    }

    /// Ids of the functions of the session that patterns name.
    pub fn matching(&self, patterns: &[Pattern]) -> Result<Vec<usize>, SessionError> {
        let space = Space::open(&self.process)?;
        let modules = modules(&self.process, &space.maps()?);
        let mut ids = BTreeSet::new();
        for (id, function) in self.document.measured() {
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
                let selected = || image.select(pattern, name, Bias(doc.bias)).into_iter();
                pattern.module_matches(name)
                    && selected().any(|f| f.range.start.0 == function.address)
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
        self.publish_tables(modules)?;
        let mut changed = Changed::default();
        let mut fresh = Vec::new();
        let mut ids = Vec::new();
        let reapers = if self.wanted().exits {
            reapers(modules, selection.allowed)
        } else {
            Vec::new()
        };
        let mut claims = Claims::of(&self.document);
        let mut candidates = selection.candidates;
        candidates.extend(reapers);
        self.plan_for_room(&mut candidates)?;
        // What a pun depends on had better be changed by the function whose it is.
        candidates.sort_by_key(|c| c.plan.sites.iter().any(|s| s.pun.is_some()));
        put_moves_first(&mut candidates);
        for mut candidate in candidates {
            let known = self.known(&candidate);
            let refusal = match candidate.plan.refused() {
                Some((_, reason)) => Some(reason),
                None if known.is_some() || self.admit(&mut claims, &mut candidate) => None,
                None => Some(RefuseReason::OverlapsFunction),
            };
            if let Some(reason) = refusal {
                self.refuse(modules, &candidate, reason.to_string(), &mut changed);
                continue;
            }
            let Some(id) = known else {
                fresh.push(candidate);
                continue;
            };
            let is_in = self.document.functions[id].active;
            if candidate.reaper.is_none() {
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
        let mut stopped = stopped;
        let prepared = self.prepare(modules, fresh, stopped.as_deref_mut(), &mut changed)?;
        ids.extend(prepared);
        let is_none = changed.functions.is_empty() && changed.already.is_empty();
        if is_none && !changed.refused.is_empty() {
            self.segment.write_document(&self.document)?;
            return Err(SessionError::Refused(changed.refused));
        }
        if ids.is_empty() {
            self.segment.write_document(&self.document)?;
            return Ok(changed);
        }
        let has_trap = |id: &&usize| {
            let function = &self.document.functions[**id];
            function.sites.iter().any(|s| s.trap)
        };
        let trapped = ids.iter().filter(has_trap);
        let name = |&id: &usize| self.document.functions[id].name.clone();
        changed.trapped = trapped.map(name).collect();
        self.fill_traps(&ids)?;
        // Where the trampolines are by now.
        self.publish_maps()?;
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
        // What was in the way of some of them before is not any more.
        let document = &mut self.document;
        let functions = &document.functions;
        let is_in = |r: &RefusedDoc| {
            let mut of_place = functions
                .iter()
                .filter(|f| f.module == r.module && f.address == r.address);
            of_place.any(|f| f.active && f.reaper.is_none())
        };
        document.refused.retain(|r| !is_in(r));
        changed.unfollowed = self.unfollowed(modules);
        changed.partly = partly(&self.document, &ids);
        self.segment.write_document(&self.document)?;
        Ok(changed)
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
        ids.sort_by_key(|&id| self.document.functions[id].reaper.is_none());
        while !ids.is_empty() {
            let rest = ids.split_off(self.in_one_stop(ids.iter()));
            let mut batch = std::mem::replace(&mut ids, rest);
            while !batch.is_empty() {
                let done = match stopped.as_deref_mut() {
                    Some(stopped) => {
                        let mut stacks = self.stacks(space.memory())?;
                        self.handle_traps(&code, stopped, &batch)?;
                        self.write_in(stopped, &mut stacks, &batch)
                    }
                    None => self.in_stop(why, |locked, stopped, stacks| {
                        locked.handle_traps(&code, stopped, &batch)?;
                        locked.write_in(stopped, stacks, &batch)
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
    fn in_one_stop<'i>(&self, ids: impl Iterator<Item = &'i usize>) -> usize {
        const SITES: usize = 1000;
        let mut sites = 0;
        let fits = |id: &&usize| {
            sites += self.document.functions[**id].sites.len();
            sites <= SITES
        };
        ids.take_while(fits).count().max(1)
    }

    fn remove(&mut self, ids: &[usize]) -> Result<Changed, SessionError> {
        let functions = &self.document.functions;
        let is_in = |id: &usize| {
            functions
                .get(*id)
                .is_some_and(|f| f.active && f.reaper.is_none())
        };
        let ids: Vec<usize> = ids.iter().copied().filter(is_in).collect();
        let mut taken = ids.clone();
        taken.extend(self.idle_reapers(&ids));
        self.take_out("remove", &taken)?;
        self.segment.write_document(&self.document)?;
        let name = |&id: &usize| self.document.functions[id].name.clone();
        Ok(Changed {
            functions: ids.iter().map(name).collect(),
            ..Changed::default()
        })
    }

    /// The reapers, where nothing stays in that they serve once `leaving` is out.
    fn idle_reapers(&self, leaving: &[usize]) -> Vec<usize> {
        let functions = self.document.functions.iter().enumerate();
        let active = functions.filter(|(id, f)| f.active && !leaving.contains(id));
        let (reapers, others): (Vec<_>, Vec<_>) = active.partition(|(_, f)| f.reaper.is_some());
        match others.is_empty() {
            true => reapers.into_iter().map(|(id, _)| id).collect(),
            false => Vec::new(),
        }
    }

    pub(super) fn take_out(&mut self, why: &str, ids: &[usize]) -> Result<(), SessionError> {
        if ids.is_empty() {
            return Ok(());
        }
        // From here on no call is counted that would be seen to enter and not to return.
        self.switch(ids, false)?;
        let mut ids = ids.to_vec();
        ids.sort_by_key(|&id| (self.document.functions[id].reaper.is_none(), id));
        while !ids.is_empty() {
            let batch = ids.split_off(ids.len() - self.in_one_stop(ids.iter().rev()));
            self.in_stop(why, |locked, stopped, _| locked.write_out(stopped, &batch))?;
        }
        Ok(())
    }

    /// Runs `work` with all threads stopped, and again after a while as long as it answers that a
    /// thread is in its way.
    fn in_stop(
        &mut self,
        why: &str,
        mut work: impl FnMut(&mut Self, &mut Stopped, &mut Stacks) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(&self.space);
        let mut attempts = 0;
        loop {
            let mut stacks = self.stacks(space.memory())?;
            let mut stopped = self.stop_all()?;
            let result = work(self, &mut stopped, &mut stacks);
            let duration = stopped.resume()?;
            self.note_stop(why, duration);
            attempts += 1;
            match result {
                Err(SessionError::InTheWay(what)) if what.passes() && attempts < ATTEMPTS => {
                    sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    pub(super) fn known(&self, candidate: &Candidate) -> Option<usize> {
        let address = candidate.plan.function.range.start;
        self.document.functions.iter().position(|f| {
            if f.reaper != candidate.reaper {
                return false;
            }
            let module = self.document.modules.get(f.module);
            f.address == address.0 && module.is_some_and(|m| m.bias == candidate.bias.0)
        })
    }

    /// Notes down that a function cannot be instrumented; nobody has asked for a reaper.
    fn refuse(
        &mut self,
        modules: &[Module],
        candidate: &Candidate,
        reason: String,
        changed: &mut Changed,
    ) {
        if candidate.reaper.is_some() {
            return;
        }
        let refused = (candidate.name.clone(), reason.clone());
        changed.refused.push(refused);
        let module = self.module_id(modules, candidate);
        let address = candidate.plan.function.range.start.0;
        self.add_refused(RefusedDoc {
            name: candidate.name.clone(),
            module,
            address,
            reason,
        });
    }

    /// Notes that a function of the session is refused.
    pub(super) fn refuse_known(&mut self, id: usize, reason: &str) {
        let function = &self.document.functions[id];
        self.add_refused(RefusedDoc {
            name: function.name.clone(),
            module: function.module,
            address: function.address,
            reason: reason.to_owned(),
        });
    }

    fn add_refused(&mut self, refused: RefusedDoc) {
        if !self.document.refused.contains(&refused) {
            self.document.refused.push(refused);
        }
    }

    fn module_id(&mut self, modules: &[Module], candidate: &Candidate) -> usize {
        let module = &modules[candidate.module];
        let known = |m: &ModuleDoc| m.path == module.path && m.bias == candidate.bias.0;
        if let Some(id) = self.document.modules.iter().position(known) {
            return id;
        }
        let build_id = candidate.image.image.build_id();
        let code = module.code_range();
        self.document.modules.push(ModuleDoc {
            path: module.path.clone(),
            build_id: build_id.map(|b| b.iter().map(|b| format!("{b:02x}")).collect()),
            bias: candidate.bias.0,
            code: (code.start.0, code.end.0),
        });
        self.document.modules.len() - 1
    }

    /// Lays out and writes the trampolines of functions that are new to the session; their ids.
    fn prepare(
        &mut self,
        modules: &[Module],
        fresh: Vec<Candidate>,
        stopped: Option<&mut Stopped>,
        changed: &mut Changed,
    ) -> Result<Vec<usize>, SessionError> {
        if fresh.is_empty() {
            return Ok(Vec::new());
        }
        if self.document.functions.len() + fresh.len() > abi::MAX_FUNCTIONS {
            return Err(SessionError::TooMany);
        }
        let mut places = self.regions_for(modules, &fresh, stopped)?;
        let mut ids = Vec::new();
        let mut writes = Vec::new();
        for candidate in fresh {
            match places.emit(&candidate, self.document.functions.len() as u32) {
                Ok(emitted) => {
                    ids.push(self.enter(modules, &candidate, emitted, &mut writes)?);
                    if candidate.reaper.is_none() {
                        changed.functions.push(candidate.name);
                    }
                }
                Err(reason) => self.refuse(modules, &candidate, reason.to_string(), changed),
            }
        }
        self.document.regions = places.regions;
        self.write_own(&writes)?;
        Ok(ids)
    }

    /// Room for the trampolines of these functions.
    fn regions_for(
        &mut self,
        modules: &[Module],
        fresh: &[Candidate],
        mut stopped: Option<&mut Stopped>,
    ) -> Result<Places, SessionError> {
        /// The program may map something of its own at a place chosen, before it is stopped.
        const TRIES: usize = 8;
        let used: BTreeSet<usize> = fresh.iter().map(|c| c.module).collect();
        let mut tries = 0;
        loop {
            let maps = self.space.maps_with_heap()?;
            let mut places = Places::new(&self.document, maps.clone());
            places.reserve_stones(fresh);
            for &index in &used {
                let of_module: Vec<&Candidate> =
                    fresh.iter().filter(|c| c.module == index).collect();
                places.reserve(index, &modules[index], &of_module);
            }
            let new = places.new_regions().to_vec();
            match self.map_regions(&maps, &new, stopped.as_deref_mut()) {
                Ok(()) => {
                    places.regions.iter_mut().for_each(|r| r.ready = true);
                    return Ok(places);
                }
                Err(error) => {
                    // Those that were mapped before the one that failed.
                    if stopped.is_none() {
                        self.recover_regions()?;
                    }
                    if tries == TRIES
                        || !matches!(
                            &error,
                            SessionError::Tracee(TraceeError::Call(_, Errno::EEXIST))
                        )
                    {
                        return Err(error);
                    }
                    tries += 1;
                }
            }
        }
    }

    fn map_regions(
        &mut self,
        maps: &[Mapping],
        regions: &[RegionDoc],
        stopped: Option<&mut Stopped>,
    ) -> Result<(), SessionError> {
        if regions.is_empty() {
            return Ok(());
        }
        // Noted down before: what is mapped must be found again.
        self.document.regions.extend_from_slice(regions);
        self.segment.write_document(&self.document)?;
        let space = Arc::clone(&self.space);
        let code = CallCode::find(&self.process, maps, space.memory())?;
        let locks = self.process.locks_memory();
        let map = |stopped: &mut Stopped| {
            let mut remote = Remote::new(&code, stopped)?;
            for region in regions {
                let protection = libc::PROT_READ | libc::PROT_EXEC;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let at = Avma(region.start);
                remote.map_lazily(locks, at, region.len, protection, flags, -1)?;
            }
            Ok::<(), SessionError>(())
        };
        match stopped {
            Some(stopped) => map(stopped)?,
            None => {
                let mut stopped = self.stop_all()?;
                let result = map(&mut stopped);
                let duration = stopped.resume()?;
                self.note_stop("map", duration);
                result?;
            }
        }
        let maps = space.maps()?;
        for region in regions {
            if !self.own.admit(&maps, Avma(region.start), region.len) {
                return Err(SegmentError::Corrupt("mappings").into());
            }
        }
        let cells = self.cells()?;
        let starts = regions.iter().map(|r| (Avma(r.start), cells.clone()));
        self.write_own(&starts.collect::<Vec<_>>())?;
        self.document
            .regions
            .iter_mut()
            .for_each(|r| r.ready = true);
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Takes a function into the document, and what is to be written for it into `writes`; its id.
    fn enter(
        &mut self,
        modules: &[Module],
        candidate: &Candidate,
        emitted: Vec<(Place, Emitted)>,
        writes: &mut Vec<(Avma, Vec<u8>)>,
    ) -> Result<usize, SessionError> {
        let id = self.document.functions.len();
        let module = self.module_id(modules, candidate);
        let mut sites = Vec::new();
        for (site, (place, emitted)) in candidate.plan.sites.iter().zip(emitted) {
            writes.push((place.trampoline, emitted.code.clone()));
            if let Some(stone) = place.stone {
                writes.push((stone, emitted.stone.clone()));
            }
            let journal = Journal(&self.segment);
            let patches: Result<Vec<u32>, _> =
                emitted.patches.iter().map(|p| journal.add(p)).collect();
            let pair = |p: &patcher::emit::PcPair| (p.original.0, p.trampoline.0);
            let at = |svma| candidate.bias.to_avma(svma).0;
            let range = |r: &std::ops::Range<_>| (at(r.start), at(r.end));
            let kept = site.pun.as_ref();
            sites.push(SiteDoc {
                window: range(&site.window),
                landing: site.landing.as_ref().map(range).unwrap_or_default(),
                trampoline: (place.trampoline.0, emitted.code.len() as u64),
                stone: place.stone.map_or(0, |stone| stone.0),
                kept: kept
                    .map(|pun| (at(pun.depends.start), pun.bytes.clone()))
                    .unwrap_or_default(),
                patches: patches?,
                trap: site.tactic == Tactic::Trap,
                pcs: emitted.pcs.iter().map(pair).collect(),
                hook_starts: emitted.hook_starts.iter().map(pair).collect(),
            });
        }
        let function = &candidate.plan.function;
        let tactic = |p: &patcher::plan::PointPlan| {
            p.outcome.map_or_else(|r| r.to_string(), |t| t.to_string())
        };
        self.document.functions.push(FunctionDoc {
            name: candidate.name.clone(),
            linkage: function.linkage.clone(),
            aliases: function.aliases.clone(),
            module,
            address: function.range.start.0,
            size: function.size(),
            entry: tactic(&candidate.plan.entry),
            exits: candidate.plan.exits.iter().map(tactic).collect(),
            clones: candidate.elsewhere.clones.clone(),
            inlined: candidate.elsewhere.inlined,
            reaper: candidate.reaper,
            active: false,
            generation: 0,
            sites,
        });
        Ok(id)
    }
}
