//! Adding functions that are new to a session: room for their trampolines, the trampolines, and
//! their rows in the document.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::sync::Arc;

use abi::count::{BANK_OF, BANK_SHIFT, Bank, CLAIM, FIRST, HASHED};
use abi::image::{Parameters, SYMBOL_ALIVE, SYMBOL_PARAMETERS};
use abi::path::{self, Row, Slot};
use abi::schema::SCHEMA_COUNT;
use nix::errno::Errno;
use patcher::Avma;
use patcher::emit::{CodePlace, Emitted};
use patcher::inside::TripCounting;
use patcher::isa::{CountIn, PathRow};
use patcher::plan::{PointPlan, Tactic};
use patcher::select::Pattern;

use super::copies;
use super::enders::lend_tail_calls;
use super::locked::Locked;
use super::place::Places;
use super::recover::recover_regions;
use super::refusing::{module_id, refuse_candidate};
use super::runtime_memory::read;
use super::{Candidate, Changed, Point, Refusal, SessionError};
use crate::segment::{
    BankedDoc, Document, EarlierDoc, FunctionDoc, InsideDoc, Journal, KeptDoc, PairDoc, Reach,
    RegionDoc, Role, Segment, SegmentError, SiteDoc, State,
};
use ipath_target::process::modules::Module;
use ipath_target::process::{Extent, Mapping};
use ipath_target::tracee::{CallCode, Remote, Stopped, TraceeError};

/// Lays out and writes the trampolines of functions that are new to the session. Returns their ids.
/// The functions `known` come in with them. Fails if the session has no room for so many functions,
/// or if the memory cannot be mapped or written.
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
    let rows = fresh.iter().map(|c| {
        let others = [c.carries_itself(), c.counted.is_some()];
        c.points.len() + 1 + others.map(usize::from).iter().sum::<usize>()
    });
    if locked.document.functions.len() + rows.sum::<usize>() > abi::MOST_FUNCTIONS {
        return Err(SessionError::TooMany);
    }
    let mut places = regions_for(locked, modules, &fresh, stopped)?;
    let counts = fresh.iter().any(|candidate| candidate.counted.is_some());
    places.counts_inline = counts && has_self_pointer(locked)?;
    let mut ids = Vec::new();
    let mut writes = Vec::new();
    for mut candidate in fresh {
        // The carrier of points comes first, then its function if that is measured, then the
        // points.
        let first = locked.document.functions.len() as u32;
        let own = first + u32::from(candidate.carries_itself());
        let relaid = candidate.relaid.clone().unwrap_or_default();
        let known = candidate.exits_of.or(relaid.function);
        let function = known.map_or(own, |id| id as u32);
        candidate.plan.number_points(|number| function + 1 + number);
        if let Err(refusal) = take_counters(locked, &mut candidate, &mut writes)? {
            refuse_candidate(&mut locked.document, modules, &candidate, refusal, changed);
            ids.extend(locked.document.take_back_sites(&relaid));
            continue;
        }
        match places.emit(&candidate, function) {
            Ok(emitted) => {
                enter_rows(locked, modules, &candidate, emitted, &mut writes)?;
                ids.extend(first as usize..locked.document.functions.len());
                ids.extend(relaid.rows());
                let is_new = candidate.exits_of.is_none() && !relaid.measures_already();
                if candidate.role.is_measured() && is_new {
                    changed.functions.push(candidate.name);
                }
                let points = candidate.points.into_iter().map(|point| point.name);
                let counted = candidate.counted.filter(|_| !relaid.counts_already());
                let counted = counted.into_iter().map(|counted| counted.title());
                changed.functions.extend(points.chain(counted));
            }
            Err(reason) => {
                let document = &mut locked.document;
                refuse_candidate(document, modules, &candidate, reason.into(), changed);
                ids.extend(document.take_back_sites(&relaid));
            }
        }
    }
    locked.document.regions = places.regions;
    locked.write_own(&writes)?;
    Ok(ids)
}

/// Reserves and maps room for the trampolines of these functions.
fn regions_for(
    locked: &mut Locked<'_>,
    modules: &[Module],
    fresh: &[Candidate],
    mut stopped: Option<&mut Stopped>,
) -> Result<Places, SessionError> {
    /// The program may map something at a chosen address before it is stopped.
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
                // Removes those that were mapped before the one that failed.
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

/// Maps new regions, records them in the document, and fills in the addresses of the stubs.
fn map_regions(
    locked: &mut Locked<'_>,
    maps: &[Mapping],
    regions: &[RegionDoc],
    stopped: Option<&mut Stopped>,
) -> Result<(), SessionError> {
    if regions.is_empty() {
        return Ok(());
    }
    // Recorded first, so that recovery can find the mappings.
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

/// The hooks that count use this layout.
const _: () = assert!(
    CountIn::BANK_OF == BANK_OF
        && CountIn::BANK_SHIFT as u32 == BANK_SHIFT
        && CountIn::AT as usize == offset_of!(Bank, at)
        && CountIn::HASHED as usize == (HASHED - FIRST) * size_of::<Bank>()
        && offset_of!(Bank, owner) == 0
);

/// The hooks of paths use this layout.
const _: () = assert!(
    PathRow::LEN == size_of::<Row>()
        && PathRow::BEGINS == path::BEGINS
        && PathRow::ADDS == path::ADDS
        && PathRow::ENDS == path::ENDS
        && PathRow::RESTARTS == path::RESTARTS
        && PathRow::EACH == path::EACH
        && PathRow::TABLE == path::TABLE
        && PathRow::HISTOGRAM == path::HISTOGRAM
        && TripCounting::COUNTERS == path::POWERS
        && PathRow::BEFORE == path::BEFORE
        && PathRow::FUNCTION_SHIFT == path::FUNCTION_SHIFT
        && offset_of!(Slot, activation) == 0
        && PathRow::SUM as usize == offset_of!(Slot, sum)
        && PathRow::BEGUN == path::BEGUN
        && path::ENTRIES == 1 << PathRow::TABLE_BITS
        && PathRow::MULTIPLIER == path::MULTIPLIER
        && PathRow::FRAMES as u64 == (path::FRAME_SLOTS as u64 - 1) * path::FRAME_ALIGN
        && path::FRAME_ALIGN == size_of::<Slot>() as u64
        && PathRow::DISTANCE as u64 == path::FRAME_ALIGN
        && PathRow::PAGE as i64 as u64 == !(abi::PAGE - 1)
        && offset_of!(path::Slots, of_frames) == 0
);

/// True if the runtime finds the thread pointer in the first word of the control block.
fn has_self_pointer(locked: &Locked<'_>) -> Result<bool, SessionError> {
    let parameters = locked.symbol(SYMBOL_PARAMETERS)?;
    let at = parameters.plus(offset_of!(Parameters, reads_tp) as u64);
    let reads = read(locked.space.memory(), at, size_of::<u32>())?;
    Ok(reads.iter().all(|&byte| byte == 0))
}

/// Gives a candidate numbers and memory for its counters. Adds the addresses of their banks to
/// `writes`. The result is the reason if there is no room.
fn take_counters(
    locked: &mut Locked<'_>,
    candidate: &mut Candidate,
    writes: &mut Vec<(Avma, Vec<u8>)>,
) -> Result<Result<(), Refusal>, SessionError> {
    let Candidate {
        counted,
        points,
        plan,
        relaid,
        ..
    } = candidate;
    let row = relaid.as_ref().and_then(|relaid| relaid.edges);
    let known = row.and_then(|id| locked.document.functions[id].inside.as_ref());
    if let (Some(counted), Some(known)) = (&mut *counted, known) {
        counted.inside.earlier.clone_from(&known.earlier);
        // Counters of paths do not depend on the places of the hooks. If these change, no hook is
        // running, and the sums of activations change with them.
        let is_alike =
            !known.by_counts && (!counted.inside.by_counts || counted.inside.counted.is_empty());
        if is_alike {
            // The counts go on.
            counted.inside.first = known.first;
            plan.number_counters_from(known.first);
            return Ok(Ok(()));
        }
        counted.inside.earlier.push(EarlierDoc {
            first: known.first,
            counted: known.counted.clone(),
        });
    }
    let timed = points.iter_mut().filter_map(|point| point.paths.as_mut());
    let timed = timed.map(|paths| &mut paths.inside);
    let counted = counted.iter_mut().map(|counted| &mut counted.inside);
    let all: Vec<&mut InsideDoc> = counted.chain(timed).collect();
    let ends = all.iter().map(|inside| inside.first + inside.counters());
    let Some(count) = ends.max() else {
        return Ok(Ok(()));
    };
    // The number before the first one is never read.
    let first = locked.document.edge_counters.max(CLAIM + 1);
    if !locked.segment.add_counters(first, count)? {
        let why = format!("the session has no room for its {count} counters");
        return Ok(Err(Refusal::Inside(why)));
    }
    for inside in all {
        inside.first += first;
    }
    plan.number_counters_from(first);
    locked.document.edge_counters = first + count;
    let table = locked.symbol(SYMBOL_ALIVE)?;
    writes.extend(banks(&locked.segment, locked.document.segment.start, table));
    Ok(Ok(()))
}

/// The entries of the table of banks at `table`, in a target that has the segment at `start`.
pub(super) fn banks(
    segment: &Segment,
    start: Avma,
    table: Avma,
) -> impl Iterator<Item = (Avma, Vec<u8>)> + use<> {
    let entries = segment.banks(start).zip(0..);
    entries.map(move |(bank, number)| {
        let at = size_of::<Bank>() * number + offset_of!(Bank, at);
        (table.plus(at as u64), bank.0.to_le_bytes().to_vec())
    })
}

/// Adds a function and its points to the document, and the bytes of its trampolines to `writes`.
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
    let relaid = candidate.relaid.clone().unwrap_or_default();
    if !candidate.is_carrier() {
        match relaid.function {
            Some(id) => locked.document.functions[id].lay_anew(function),
            None => locked.document.functions.push(function),
        }
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
    let ends = |point: &Point, plans: &[PointPlan]| {
        let is_timed = locked.document.needs_exits(point.schema);
        let hooks = point.ends().into_iter().zip(plans);
        let ends = hooks.filter(|(ends, _)| is_timed && *ends);
        ends.map(|(_, plan)| tactic(plan)).collect()
    };
    let points = candidate.planned_points();
    let points = points.map(|(point, plans)| FunctionDoc {
        name: point.name.clone(),
        linkage: match point.role() {
            // The function's name would be that of another row.
            Role::Span => String::new(),
            _ => carried.linkage.clone(),
        },
        address: point.at,
        size: 0,
        entry: plans.first().map(tactic).unwrap_or_default(),
        exits: ends(point, plans),
        reach: Reach::Whole,
        clones: Vec::new(),
        inlined: 0,
        role: point.role(),
        copy: point.copy.clone(),
        inside: point
            .paths
            .as_ref()
            .map(|paths| Box::new(paths.inside.clone())),
        children: None,
        lends: Vec::new(),
        ends: false,
        schema: point.schema,
        values: point.standing,
        ..carried.clone()
    });
    let counted = candidate.counted.as_ref().map(|counted| FunctionDoc {
        exits: Vec::new(),
        reach: Reach::Whole,
        role: Role::Edges,
        children: None,
        lends: Vec::new(),
        ends: false,
        schema: SCHEMA_COUNT,
        inside: Some(Box::new(counted.inside.clone())),
        ..carried.clone()
    });
    let counted = counted.filter(|_| relaid.edges.is_none());
    let points: Vec<FunctionDoc> = points.chain(counted).collect();
    let functions = &mut locked.document.functions;
    if let Some(id) = relaid.edges {
        let counted = candidate.counted.as_ref();
        functions[id].carried_by = carrier;
        functions[id].inside = counted.map(|counted| Box::new(counted.inside.clone()));
    }
    let function = Some(carried).filter(|_| candidate.carries_itself());
    let function = match (relaid.function, function) {
        (Some(id), Some(function)) => {
            functions[id].lay_anew(function);
            None
        }
        (_, function) => function,
    };
    functions.extend(function.into_iter().chain(points));
    Ok(())
}

/// Builds the document's sites of a candidate, and adds the bytes of its trampolines to `writes`.
fn new_sites(
    locked: &mut Locked<'_>,
    candidate: &Candidate,
    emitted: Vec<(CodePlace, Emitted)>,
    writes: &mut Vec<(Avma, Vec<u8>)>,
) -> Result<Vec<SiteDoc>, SessionError> {
    let mut sites = Vec::new();
    for (site, (place, emitted)) in candidate.plan.sites.iter().zip(emitted) {
        writes.push((place.trampoline, emitted.code.clone()));
        let newest = &mut locked.document.copies;
        if let Some(table) = copies::table(site, place.trampoline, &emitted, *newest) {
            *newest = table.0.0;
            writes.push(table);
        }
        if let Some(stone) = place.stone {
            writes.push((stone, emitted.stone.clone()));
        }
        let journal = Journal(&locked.segment);
        let patches: Result<Vec<u32>, _> = emitted.patches.iter().map(|p| journal.add(p)).collect();
        let pair = |p: &patcher::emit::PcPair| PairDoc {
            original: p.original,
            trampoline: p.trampoline,
        };
        let banked = |p: &patcher::emit::BankedPc| BankedDoc {
            pcs: pair(&p.pcs),
            register: p.register,
            saved_at: p.saved_at,
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
            banked: emitted.banked.iter().map(banked).collect(),
        });
    }
    Ok(sites)
}

/// True if a retired row of the session measured this function, at the same place in the process,
/// whether or not it was called.
fn was_in_before(document: &Document, candidate: &Candidate) -> bool {
    let place = Some(candidate.place());
    let is_it = |f: &FunctionDoc| f.is_retired() && f.role.is_measured();
    let mut functions = document.functions.iter();
    functions.any(|f| is_it(f) && document.place_of(f) == place)
}

/// The document's row of a candidate with these sites.
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
        is_phase: document.is_phase(candidate),
        lends: candidate.plan.tail_calls().iter().map(|at| at.0).collect(),
        ends: candidate.ends(),
        lending: 0,
        is_lending: false,
        state: State::Out,
        schema: candidate.schema,
        values: candidate.values,
        carried_by: None,
        copy: None,
        inside: None,
        generation: 0,
        since_ns: None,
        out_ns: None,
        away_ns: 0,
        throttled: None,
        sites,
    }
}

impl Document {
    /// True if each call of the candidate's function is a phase.
    pub(super) fn is_phase(&self, candidate: &Candidate) -> bool {
        let mut patterns = self.phases.iter().flat_map(|text| Pattern::parse(text));
        candidate.role.is_measured() && patterns.any(|pattern| candidate.is_named_by(&pattern))
    }
}

impl FunctionDoc {
    /// Takes over how a new row for the same function is patched.
    fn lay_anew(&mut self, new: Self) {
        self.entry = new.entry;
        self.exits = new.exits;
        self.reach = Reach::Whole;
        self.first_sites = new.first_sites;
        self.lends = new.lends;
        self.ends = new.ends;
        self.carried_by = new.carried_by;
        self.sites = new.sites;
    }

    /// Adds the sites of its exits, which are out for now.
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
    /// True if a pattern names the function. The pattern's module is not considered.
    fn is_named_by(&self, pattern: &Pattern) -> bool {
        let function = &self.plan.function;
        let start = self.bias.to_avma(function.range.start);
        if let Some(at) = pattern.absolute_address() {
            return start <= at && at < start.plus(function.size());
        }
        if let Some(at) = pattern.address_in_file() {
            return function.range.contains(&at);
        }
        let names = std::iter::once(&function.linkage).chain(&function.aliases);
        let mut names = names.filter(|name| !name.is_empty());
        names.any(|name| pattern.names(name))
    }

    /// True if the function is measured and also carries hooks of points.
    fn carries_itself(&self) -> bool {
        self.role.is_measured() && self.is_carrier()
    }
}

/// The tactic of a probe point as text, or the reason for its refusal.
fn tactic(plan: &PointPlan) -> String {
    match plan.outcome {
        Ok(tactic) => tactic.to_string(),
        Err(reason) => reason.to_string(),
    }
}
