//! Functions that are new to a session: room for their trampolines, the trampolines, and what the document says.

use std::collections::BTreeSet;
use std::sync::Arc;

use abi::schema::SCHEMA_COUNT;
use nix::errno::Errno;
use patcher::Avma;
use patcher::emit::{CodePlace, Emitted};
use patcher::plan::{PointPlan, Tactic};

use super::enders::lend_tail_calls;
use super::locked::Locked;
use super::place::Places;
use super::recover::recover_regions;
use super::refusing::{module_id, refuse_candidate};
use super::{Candidate, Changed, SessionError};
use crate::segment::{
    Document, FunctionDoc, Journal, KeptDoc, PairDoc, Reach, RegionDoc, Role, SegmentError,
    SiteDoc, State,
};
use ipath_target::process::modules::Module;
use ipath_target::process::{Extent, Mapping};
use ipath_target::tracee::{CallCode, Remote, Stopped, TraceeError};

/// Lays out and writes the trampolines of functions that are new to the session; their ids. They come in with those that
/// are known by `known`.
pub(super) fn prepare(
    locked: &mut Locked<'_>,
    modules: &[Module],
    mut fresh: Vec<Candidate>,
    known: &[usize],
    stopped: Option<&mut Stopped>,
    changed: &mut Changed,
) -> Result<Vec<usize>, SessionError> {
    lend_tail_calls(&locked.document, &mut fresh, known);
    if fresh.is_empty() {
        return Ok(Vec::new());
    }
    let rows = fresh
        .iter()
        .map(|c| c.points.len() + 1 + usize::from(c.carries_itself()));
    if locked.document.functions.len() + rows.sum::<usize>() > abi::MOST_FUNCTIONS {
        return Err(SessionError::TooMany);
    }
    let mut places = regions_for(locked, modules, &fresh, stopped)?;
    let mut ids = Vec::new();
    let mut writes = Vec::new();
    for mut candidate in fresh {
        // What carries points comes first, then its function, if it is measured, then they.
        let first = locked.document.functions.len() as u32;
        let own = first + u32::from(candidate.carries_itself());
        let function = candidate.exits_of.map_or(own, |id| id as u32);
        candidate.plan.number_points(|number| function + 1 + number);
        match places.emit(&candidate, function) {
            Ok(emitted) => {
                enter_rows(locked, modules, &candidate, emitted, &mut writes)?;
                ids.extend(first as usize..locked.document.functions.len());
                if candidate.role.is_measured() && candidate.exits_of.is_none() {
                    changed.functions.push(candidate.name);
                }
                let points = candidate.points.into_iter();
                changed.functions.extend(points.map(|point| point.name));
            }
            Err(reason) => refuse_candidate(
                &mut locked.document,
                modules,
                &candidate,
                reason.into(),
                changed,
            ),
        }
    }
    locked.document.regions = places.regions;
    locked.write_own(&writes)?;
    Ok(ids)
}

/// Room for the trampolines of these functions.
fn regions_for(
    locked: &mut Locked<'_>,
    modules: &[Module],
    fresh: &[Candidate],
    mut stopped: Option<&mut Stopped>,
) -> Result<Places, SessionError> {
    /// The program may map something of its own at a place chosen, before it is stopped.
    const TRIES: usize = 8;
    let used: BTreeSet<usize> = fresh.iter().map(|c| c.module).collect();
    let mut tries = 0;
    loop {
        let maps = locked.space.maps_with_heap()?;
        let mut places = Places::new(&locked.document, maps.clone());
        places.reserve_stones(fresh);
        for &index in &used {
            let of_module: Vec<&Candidate> = fresh.iter().filter(|c| c.module == index).collect();
            places.reserve(index, &modules[index], &of_module);
        }
        let new = places.new_regions().to_vec();
        match map_regions(locked, &maps, &new, stopped.as_deref_mut()) {
            Ok(()) => {
                places.regions.iter_mut().for_each(|r| r.ready = true);
                return Ok(places);
            }
            Err(error) => {
                // Those that were mapped before the one that failed.
                if stopped.is_none() {
                    recover_regions(locked)?;
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
    locked: &mut Locked<'_>,
    maps: &[Mapping],
    regions: &[RegionDoc],
    stopped: Option<&mut Stopped>,
) -> Result<(), SessionError> {
    if regions.is_empty() {
        return Ok(());
    }
    // Noted down before: what is mapped must be found again.
    locked.document.regions.extend_from_slice(regions);
    locked.segment.write_document(&locked.document)?;
    let space = Arc::clone(&locked.space);
    let code = CallCode::find(&locked.process, maps, space.memory())?;
    let locks = locked.process.locks_memory();
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
            let mut stopped = locked.stop_all()?;
            let result = map(&mut stopped);
            let duration = stopped.resume()?;
            locked.note_stop("map", duration);
            result?;
        }
    }
    let maps = space.maps()?;
    for region in regions {
        if !locked.own.admit(&maps, region.extent()) {
            return Err(SegmentError::Corrupt("mappings").into());
        }
    }
    let cells = locked.cells()?;
    let starts = regions.iter().map(|r| (r.start, cells.clone()));
    locked.write_own(&starts.collect::<Vec<_>>())?;
    locked
        .document
        .regions
        .iter_mut()
        .for_each(|r| r.ready = true);
    locked.segment.write_document(&locked.document)?;
    Ok(())
}

/// Takes a function and its points into the document, and what is to be written for it into `writes`.
fn enter_rows(
    locked: &mut Locked<'_>,
    modules: &[Module],
    candidate: &Candidate,
    emitted: Vec<(CodePlace, Emitted)>,
    writes: &mut Vec<(Avma, Vec<u8>)>,
) -> Result<(), SessionError> {
    let sites = new_sites(locked, candidate, emitted, writes)?;
    if let Some(id) = candidate.exits_of {
        locked.document.functions[id].lay_out(candidate, sites);
        return Ok(());
    }
    let module = module_id(&mut locked.document, modules, candidate);
    let function = new_row(&locked.document, candidate, module, sites);
    if candidate.points.is_empty() {
        locked.document.functions.push(function);
        return Ok(());
    }
    let carrier = Some(locked.document.functions.len());
    let carried = FunctionDoc {
        sites: Vec::new(),
        first_sites: 0,
        carried_by: carrier,
        ..function.clone()
    };
    locked.document.functions.push(FunctionDoc {
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
    locked
        .document
        .functions
        .extend(function.into_iter().chain(points));
    Ok(())
}

/// What is to be written at the sites of a candidate, in the document and in `writes`.
fn new_sites(
    locked: &Locked<'_>,
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
        let journal = Journal(&locked.segment);
        let patches: Result<Vec<u32>, _> = emitted.patches.iter().map(|p| journal.add(p)).collect();
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
fn was_in_before(document: &Document, candidate: &Candidate) -> bool {
    let place = Some(candidate.place());
    let is_it = |f: &FunctionDoc| f.is_retired() && f.role.is_measured();
    let mut functions = document.functions.iter();
    functions.any(|f| is_it(f) && document.place_of(f) == place)
}

/// What the document says of a candidate with these sites.
fn new_row(
    document: &Document,
    candidate: &Candidate,
    module: usize,
    sites: Vec<SiteDoc>,
) -> FunctionDoc {
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
        remeasured: was_in_before(document, candidate),
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
