//! Putting probes in and taking them out: the moments the target is stopped.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use patcher::Avma;
use patcher::emit::{Emitted, Place};
use patcher::plan::{Effects, RefuseReason, Tactic};
use patcher::select::Pattern;

use super::claims::Claims;
use super::place::Places;
use super::reapers::{put_moves_first, reapers};
use super::stack_scan::Stacks;
use super::write::write;
use super::{Candidate, Changed, Selection, Session, SessionError, select};
use crate::images;
use crate::process::modules::{Module, modules};
use crate::process::{Mapping, Memory};
use crate::segment::{FunctionDoc, Journal, ModuleDoc, RefusedDoc, RegionDoc, SiteDoc};
use crate::tracee::{CallCode, Remote, Stopped, TraceeError};

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
    pub fn select(&self, patterns: &[Pattern]) -> Result<(Vec<Module>, Selection), SessionError> {
        let maps = self.process.maps()?;
        let modules = modules(&self.process, &maps);
        let wanted = self.wanted();
        let mut selection = select(&modules, patterns, wanted);
        super::resolve(&self.process, &modules, &mut selection, wanted, None)?;
        Ok((modules, selection))
    }

    /// Instruments what was selected.
    pub fn add(
        &mut self,
        why: &str,
        modules: &[Module],
        selection: Selection,
    ) -> Result<Changed, SessionError> {
        self.locked(|session| session.add_locked(why, modules, selection, None))
    }

    /// Instruments what was selected; `stopped` are the threads of a process that is stopped
    /// already and stays so.
    pub(super) fn add_locked(
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
            reapers(modules)
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
            if candidate.reaper.is_none() {
                changed.functions.push(candidate.name);
            }
            if !self.document.functions[id].active {
                ids.push(id);
            }
        }
        let memory = self.process.memory()?;
        let mut stopped = stopped;
        let prepared = self.prepare(
            &memory,
            modules,
            fresh,
            stopped.as_deref_mut(),
            &mut changed,
        )?;
        ids.extend(prepared);
        if changed.functions.is_empty() && !changed.refused.is_empty() {
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
        self.fill_traps(&memory, &ids)?;
        let maps = self.process.maps()?;
        let code = CallCode::find(&self.process, &maps, &memory)?;
        self.switch(&memory, &ids, true)?;
        // Written down before the first byte changes: whoever finds this session half done can
        // take the bytes out again.
        self.segment.write_document(&self.document)?;
        let mut put_in = |session: &mut Self, ids: &[usize]| match stopped.as_deref_mut() {
            Some(stopped) => {
                let mut stacks = session.stacks(&memory)?;
                session.handle_traps(&memory, &code, stopped, ids)?;
                session.write_in(&memory, stopped, &mut stacks, ids)
            }
            None => session.in_stop(why, &memory, |session, stopped, stacks| {
                session.handle_traps(&memory, &code, stopped, ids)?;
                session.write_in(&memory, stopped, stacks, ids)
            }),
        };
        let result = loop {
            match put_in(self, &ids) {
                Err(SessionError::Occupied(occupied)) => {
                    let rest = self.give_up(&memory, occupied, &mut ids, &mut changed);
                    if let Err(error) = rest {
                        break Err(error);
                    }
                }
                other => break other,
            }
        };
        if let Err(error) = result {
            self.switch(&memory, &ids, false)?;
            self.segment.write_document(&self.document)?;
            return Err(error);
        }
        // What was in the way of some of them before is not any more.
        let functions = &self.document.functions;
        let is_in = |r: &RefusedDoc| {
            let mut of_place = functions
                .iter()
                .filter(|f| f.module == r.module && f.address == r.address);
            of_place.any(|f| f.active && f.reaper.is_none())
        };
        self.document.refused.retain(|r| !is_in(r));
        changed.unfollowed = self.unfollowed(modules);
        self.segment.write_document(&self.document)?;
        Ok(changed)
    }

    /// Takes out the probes of functions by id.
    pub fn remove(&mut self, ids: &[usize]) -> Result<Changed, SessionError> {
        self.locked(|session| {
            let functions = &session.document.functions;
            let is_in = |id: &usize| {
                functions
                    .get(*id)
                    .is_some_and(|f| f.active && f.reaper.is_none())
            };
            let ids: Vec<usize> = ids.iter().copied().filter(is_in).collect();
            let memory = session.process.memory()?;
            let mut taken = ids.clone();
            taken.extend(session.idle_reapers(&ids));
            session.take_out("remove", &memory, &taken)?;
            session.segment.write_document(&session.document)?;
            let name = |&id: &usize| session.document.functions[id].name.clone();
            Ok(Changed {
                functions: ids.iter().map(name).collect(),
                ..Changed::default()
            })
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

    pub(super) fn take_out(
        &mut self,
        why: &str,
        memory: &Memory,
        ids: &[usize],
    ) -> Result<(), SessionError> {
        if ids.is_empty() {
            return Ok(());
        }
        // From here on no call is counted that would be seen to enter and not to return.
        self.switch(memory, ids, false)?;
        self.in_stop(why, memory, |session, stopped, _| {
            session.write_out(memory, stopped, ids)
        })
    }

    /// Runs `work` with all threads stopped, and again after a while as long as it answers that a
    /// thread is in its way.
    fn in_stop(
        &mut self,
        why: &str,
        memory: &Memory,
        mut work: impl FnMut(&mut Self, &mut Stopped, &mut Stacks) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let mut attempts = 0;
        loop {
            let mut stacks = self.stacks(memory)?;
            let mut stopped = self.stop_all()?;
            let result = work(self, &mut stopped, &mut stacks);
            let duration = stopped.resume()?;
            self.note_stop(why, duration);
            attempts += 1;
            match result {
                Err(SessionError::Occupied(_)) if attempts < ATTEMPTS => sleep(PAUSE),
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
        memory: &Memory,
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
        let mut places = self.regions_for(memory, modules, &fresh, stopped)?;
        let mut ids = Vec::new();
        for candidate in fresh {
            match places.emit(&candidate, self.document.functions.len() as u32) {
                Ok(emitted) => {
                    ids.push(self.enter(memory, modules, &candidate, emitted)?);
                    if candidate.reaper.is_none() {
                        changed.functions.push(candidate.name);
                    }
                }
                Err(reason) => self.refuse(modules, &candidate, reason.to_string(), changed),
            }
        }
        self.document.regions = places.regions;
        Ok(ids)
    }

    /// Room for the trampolines of these functions.
    fn regions_for(
        &mut self,
        memory: &Memory,
        modules: &[Module],
        fresh: &[Candidate],
        mut stopped: Option<&mut Stopped>,
    ) -> Result<Places, SessionError> {
        /// The program may map something of its own at a place chosen, before it is stopped.
        const TRIES: usize = 8;
        let used: BTreeSet<usize> = fresh.iter().map(|c| c.module).collect();
        let mut tries = 0;
        loop {
            let maps = self.process.maps_with_heap()?;
            let mut places = Places::new(&self.document, maps.clone());
            places.reserve_stones(fresh);
            for &index in &used {
                let of_module: Vec<&Candidate> =
                    fresh.iter().filter(|c| c.module == index).collect();
                places.reserve(index, &modules[index], &of_module);
            }
            let new = places.new_regions().to_vec();
            match self.map_regions(&maps, memory, &new, stopped.as_deref_mut()) {
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
        memory: &Memory,
        regions: &[RegionDoc],
        stopped: Option<&mut Stopped>,
    ) -> Result<(), SessionError> {
        if regions.is_empty() {
            return Ok(());
        }
        // Noted down before: what is mapped must be found again.
        self.document.regions.extend_from_slice(regions);
        self.segment.write_document(&self.document)?;
        let code = CallCode::find(&self.process, maps, memory)?;
        let map = |stopped: &mut Stopped| {
            let mut remote = Remote::new(&code, memory, stopped)?;
            for region in regions {
                let protection = libc::PROT_READ | libc::PROT_EXEC;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                remote.map(Some(Avma(region.start)), region.len, protection, flags, -1)?;
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
        let image = Self::image()?;
        let cells = Self::cells(&image, Avma(self.document.image.0))?;
        for region in regions {
            write(memory, Avma(region.start), &cells)?;
        }
        self.document
            .regions
            .iter_mut()
            .for_each(|r| r.ready = true);
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Writes the trampolines of a function and takes it into the document; its id.
    fn enter(
        &mut self,
        memory: &Memory,
        modules: &[Module],
        candidate: &Candidate,
        emitted: Vec<(Place, Emitted)>,
    ) -> Result<usize, SessionError> {
        let id = self.document.functions.len();
        let module = self.module_id(modules, candidate);
        let mut sites = Vec::new();
        for (site, (place, emitted)) in candidate.plan.sites.iter().zip(emitted) {
            write(memory, place.trampoline, &emitted.code)?;
            if let Some(stone) = place.stone {
                write(memory, stone, &emitted.stone)?;
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
            reaper: candidate.reaper,
            active: false,
            generation: 0,
            sites,
        });
        Ok(id)
    }

    /// Ids of the functions of the session that patterns name.
    pub fn matching(&self, patterns: &[Pattern]) -> Result<Vec<usize>, SessionError> {
        let maps = self.process.maps()?;
        let modules = modules(&self.process, &maps);
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
            let names = |pattern: &Pattern| match pattern.absolute_address() {
                Some(at) => {
                    let at = at.0.wrapping_sub(doc.bias);
                    function.address <= at && at < function.address + function.size
                }
                None => {
                    pattern.module_matches(module.file_name())
                        && pattern
                            .select(&image.image)
                            .iter()
                            .any(|f| f.range.start.0 == function.address)
                }
            };
            if patterns.iter().any(names) {
                ids.insert(id);
            }
        }
        Ok(ids.into_iter().collect())
    }
}
