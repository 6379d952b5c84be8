//! Functions that are new to a session: room for their trampolines, the trampolines, and what the document says.

use std::collections::BTreeSet;
use std::sync::Arc;

use abi::schema::SCHEMA_COUNT;
use nix::errno::Errno;
use patcher::Avma;
use patcher::emit::{CodePlace, Emitted};
use patcher::plan::{PointPlan, Tactic};

use super::locked::Locked;
use super::place::Places;
use super::{Candidate, Changed, SessionError};
use crate::segment::{
    FunctionDoc, Journal, KeptDoc, PairDoc, Reach, RegionDoc, Role, SegmentError, SiteDoc, State,
};
use ipath_target::process::modules::Module;
use ipath_target::process::{Extent, Mapping};
use ipath_target::tracee::{CallCode, Remote, Stopped, TraceeError};

impl Locked<'_> {
    /// Lays out and writes the trampolines of functions that are new to the session; their ids. They come in with those that
    /// are known by `known`.
    pub(super) fn prepare(
        &mut self,
        modules: &[Module],
        mut fresh: Vec<Candidate>,
        known: &[usize],
        stopped: Option<&mut Stopped>,
        changed: &mut Changed,
    ) -> Result<Vec<usize>, SessionError> {
        self.lend(&mut fresh, known);
        if fresh.is_empty() {
            return Ok(Vec::new());
        }
        let rows = fresh
            .iter()
            .map(|c| c.points.len() + 1 + usize::from(c.carries_itself()));
        if self.document.functions.len() + rows.sum::<usize>() > abi::MOST_FUNCTIONS {
            return Err(SessionError::TooMany);
        }
        let mut places = self.regions_for(modules, &fresh, stopped)?;
        let mut ids = Vec::new();
        let mut writes = Vec::new();
        for mut candidate in fresh {
            // What carries points comes first, then its function, if it is measured, then they.
            let first = self.document.functions.len() as u32;
            let own = first + u32::from(candidate.carries_itself());
            let function = candidate.exits_of.map_or(own, |id| id as u32);
            candidate.plan.number_points(|number| function + 1 + number);
            match places.emit(&candidate, function) {
                Ok(emitted) => {
                    self.enter(modules, &candidate, emitted, &mut writes)?;
                    ids.extend(first as usize..self.document.functions.len());
                    if candidate.role.is_measured() && candidate.exits_of.is_none() {
                        changed.functions.push(candidate.name);
                    }
                    let points = candidate.points.into_iter();
                    changed.functions.extend(points.map(|point| point.name));
                }
                Err(reason) => self.refuse(modules, &candidate, reason.into(), changed),
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
                let at = region.start;
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
            if !self.own.admit(&maps, region.extent()) {
                return Err(SegmentError::Corrupt("mappings").into());
            }
        }
        let cells = self.cells()?;
        let starts = regions.iter().map(|r| (r.start, cells.clone()));
        self.write_own(&starts.collect::<Vec<_>>())?;
        self.document
            .regions
            .iter_mut()
            .for_each(|r| r.ready = true);
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Takes a function and its points into the document, and what is to be written for it into `writes`.
    fn enter(
        &mut self,
        modules: &[Module],
        candidate: &Candidate,
        emitted: Vec<(CodePlace, Emitted)>,
        writes: &mut Vec<(Avma, Vec<u8>)>,
    ) -> Result<(), SessionError> {
        let sites = self.sites(candidate, emitted, writes)?;
        if let Some(id) = candidate.exits_of {
            self.document.functions[id].lay_out(candidate, sites);
            return Ok(());
        }
        let module = self.module_id(modules, candidate);
        let function = self.row(candidate, module, sites);
        if candidate.points.is_empty() {
            self.document.functions.push(function);
            return Ok(());
        }
        let carrier = Some(self.document.functions.len());
        let carried = FunctionDoc {
            sites: Vec::new(),
            first_sites: 0,
            carried_by: carrier,
            ..function.clone()
        };
        self.document.functions.push(FunctionDoc {
            role: Role::Carrier,
            first_sites: function.sites.len(),
            exits: Vec::new(),
            lends: Vec::new(),
            ends: false,
            children: None,
            schema: SCHEMA_COUNT,
            ..function
        });
        let points = candidate.points.iter().zip(&candidate.plan.points);
        let points = points.map(|(point, plan)| FunctionDoc {
            name: point.name.clone(),
            address: point.at,
            size: 0,
            entry: tactic(plan),
            exits: Vec::new(),
            reach: Reach::Whole,
            clones: Vec::new(),
            inlined: 0,
            role: Role::Point,
            children: None,
            lends: Vec::new(),
            ends: false,
            schema: SCHEMA_COUNT,
            values: point.standing,
            ..carried.clone()
        });
        let points: Vec<FunctionDoc> = points.collect();
        let function = Some(carried).filter(|_| candidate.carries_itself());
        self.document
            .functions
            .extend(function.into_iter().chain(points));
        Ok(())
    }

    /// What is to be written at the sites of a candidate, in the document and in `writes`.
    fn sites(
        &self,
        candidate: &Candidate,
        emitted: Vec<(CodePlace, Emitted)>,
        writes: &mut Vec<(Avma, Vec<u8>)>,
    ) -> Result<Vec<SiteDoc>, SessionError> {
        let mut sites = Vec::new();
        for (site, (place, emitted)) in candidate.plan.sites.iter().zip(emitted) {
            writes.push((place.trampoline, emitted.code.clone()));
            if let Some(stone) = place.stone {
                writes.push((stone, emitted.stone.clone()));
            }
            let journal = Journal(&self.segment);
            let patches: Result<Vec<u32>, _> =
                emitted.patches.iter().map(|p| journal.add(p)).collect();
            let pair = |p: &patcher::emit::PcPair| PairDoc {
                original: p.original,
                trampoline: p.trampoline,
            };
            let at = |svma| candidate.bias.to_avma(svma);
            let range = |r: &std::ops::Range<_>| at(r.start)..at(r.end);
            let kept = site.pun.as_ref();
            sites.push(SiteDoc {
                window: range(&site.window),
                landing: site.landing.as_ref().map(range).unwrap_or_default(),
                trampoline: Extent {
                    start: place.trampoline,
                    len: emitted.code.len() as u64,
                },
                stone: place.stone.unwrap_or_default(),
                kept: kept
                    .map(|pun| KeptDoc {
                        at: at(pun.depends.start),
                        bytes: pun.bytes.clone(),
                    })
                    .unwrap_or_default(),
                patches: patches?,
                trap: site.tactic == Tactic::Trap,
                pcs: emitted.pcs.iter().map(pair).collect(),
                hook_starts: emitted.hook_starts.iter().map(pair).collect(),
            });
        }
        Ok(sites)
    }

    /// True if the session has calls of a function by another row, which it could not stay with.
    fn was_in_before(&self, candidate: &Candidate) -> bool {
        let place = Some(candidate.place());
        let is_it = |f: &FunctionDoc| f.is_retired() && f.role.is_measured();
        let mut functions = self.document.functions.iter();
        functions.any(|f| is_it(f) && self.document.place_of(f) == place)
    }

    /// What the document says of a candidate with these sites.
    fn row(&self, candidate: &Candidate, module: usize, sites: Vec<SiteDoc>) -> FunctionDoc {
        let function = &candidate.plan.function;
        FunctionDoc {
            name: candidate.name.clone(),
            linkage: function.linkage.clone(),
            aliases: function.aliases.clone(),
            module,
            address: function.range.start,
            size: function.size(),
            entry: tactic(&candidate.plan.entry),
            exits: candidate.plan.exits.iter().map(tactic).collect(),
            reach: Reach::Whole,
            first_sites: candidate.plan.first.min(sites.len()),
            remeasured: self.was_in_before(candidate),
            clones: candidate.elsewhere.clones.clone(),
            inlined: candidate.elsewhere.inlined,
            role: candidate.role,
            children: candidate.children,
            lends: candidate.plan.tail_calls().iter().map(|at| at.0).collect(),
            ends: candidate.ends(),
            lending: 0,
            is_lending: false,
            state: State::Out,
            schema: candidate.schema,
            values: candidate.values,
            carried_by: None,
            generation: 0,
            since_ns: None,
            out_ns: None,
            away_ns: 0,
            sites,
        }
    }
}

impl FunctionDoc {
    /// Takes in the sites of its exits, which are out for now.
    fn lay_out(&mut self, candidate: &Candidate, sites: Vec<SiteDoc>) {
        self.reach = Reach::Entry;
        self.first_sites = self.sites.len();
        self.sites.extend(sites);
        self.exits = candidate.plan.exits.iter().map(tactic).collect();
        self.lends = candidate.plan.tail_calls().iter().map(|at| at.0).collect();
        self.ends = candidate.ends();
    }
}

impl Candidate {
    /// True if it is measured, and there are points as well whose hooks are among its own.
    fn carries_itself(&self) -> bool {
        self.role.is_measured() && !self.points.is_empty()
    }
}

/// How a probe point has been had.
fn tactic(plan: &PointPlan) -> String {
    match plan.outcome {
        Ok(tactic) => tactic.to_string(),
        Err(reason) => reason.to_string(),
    }
}
