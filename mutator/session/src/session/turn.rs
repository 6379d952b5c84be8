//! Changing what functions measure while they are in.
//!
//! Their entries stay in, so that no call is missed. Each call is recorded with the metrics that
//! applied when it began. New exits are patched in the same stop in which the runtime's rows
//! change. Before exits go, the calls that they measure get time to end. A call that takes longer
//! stays open because its return is not seen.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use abi::image::{SYMBOL_DETAILS, SYMBOL_PROBES};
use abi::probe::{Kind, Probe};
use abi::segment::{AREA_RECORDS, NODE_IS_PATH};
use patcher::Avma;

use super::decide::{idle_witnesses, in_one_stop};
use super::enders::idle_enders;
use super::lending::{lend_no_more, stop_lending, switch_lending};
use super::locked::Locked;
use super::quiet::populate_columns;
use super::remeasure::{Turn, note_turn};
use super::runtime_memory::read;
use super::tables::begin_epoch;
use super::traps::{fill_traps, handle_traps};
use super::view::View;
use super::write::{Part, with_hosts, write};
use super::{Changed, SessionError};
use crate::segment::{Journal, Reach, SiteDoc};
use ipath_target::fault_injection::step;
use ipath_target::process::{Memory, Text};
use ipath_target::tracee::{CallCode, pause};

/// Size of a row of the probe table in bytes.
const ROW: usize = size_of::<Probe>();
/// The longest wait for calls to end before the hooks at their exits are removed.
const UNTIL_ENDED: Duration = Duration::from_millis(200);
/// If no call ends for this long, the wait is given up: the remaining calls take longer.
const NONE_ENDED: Duration = Duration::from_millis(20);

/// Carries out the decided changes. Functions that cannot be changed are refused by name, and the
/// rest go on.
///
/// # Errors
/// [`SessionError::Unchanged`] or [`SessionError::Refused`] if nothing at all has been changed.
/// Otherwise the process cannot be changed.
pub(super) fn turn_all(
    locked: &mut Locked<'_>,
    why: &str,
    turns: Vec<Turn>,
    changed: &mut Changed,
) -> Result<(), SessionError> {
    if turns.is_empty() {
        return Ok(());
    }
    let needs_exits = |turn: &Turn| locked.document.needs_exits(turn.schema);
    let has_exits = |turn: &Turn| locked.document.functions[turn.id].has_exits();
    let has_sites = |turn: &Turn| !locked.document.functions[turn.id].sites_out().is_empty();
    let (entering, others): (Vec<Turn>, Vec<Turn>) = turns
        .into_iter()
        .partition(|turn| needs_exits(turn) && !has_exits(turn) && has_sites(turn));
    let (leaving, others): (Vec<Turn>, Vec<Turn>) = others
        .into_iter()
        .partition(|turn| !needs_exits(turn) && has_exits(turn));
    let ids = |turns: &[Turn]| turns.iter().map(|turn| turn.id).collect::<Vec<usize>>();
    let leaving_ids = ids(&leaving);
    for &turn in others.iter().chain(&leaving) {
        note_turn(&mut locked.document, turn);
        let needs_exits = locked.document.needs_exits(turn.schema);
        locked.document.functions[turn.id].set_exits(needs_exits);
    }
    // Recorded first. A command that finds this half done removes the exits that are to go and
    // those that are not wholly in.
    locked.segment.write_document(&locked.document)?;
    write_schemas(locked)?;
    let details = |turns: &[Turn]| turns.iter().map(|t| (t.id, t.values)).collect::<Vec<_>>();
    for turns in [&entering, &others] {
        write_details(locked, &details(turns))?;
    }
    let rows = locked.view().rows_of(&ids(&others), None)?;
    locked.write_own(&rows)?;
    lend_no_more(locked, &leaving_ids)?;
    let rows = locked.view().rows_of(&leaving_ids, Some(Kind::Ending))?;
    locked.write_own(&rows)?;
    let entered = put_exits_in(locked, why, entering, changed)?;
    // From here on, no remembered walk leads to a record of the old schema.
    begin_epoch(locked)?;
    locked.segment.write_document(&locked.document)?;
    locked.view().let_end(&leaving_ids);
    take_exits_out(locked, why, &leaving_ids)?;
    if locked.document.callers_only && !leaving_ids.is_empty() {
        begin_epoch(locked)?;
    }
    for turn in others.iter().chain(&leaving).chain(&entered) {
        let function = &locked.document.functions[turn.id];
        let measured = locked.document.measured_of(function);
        let measured = measured.into_iter().map(str::to_owned).collect();
        changed.remeasured.push((function.name.clone(), measured));
    }
    let mut idle = idle_witnesses(&locked.document, &[]);
    idle.extend(idle_enders(&locked.document, &[]));
    idle.sort_unstable();
    idle.dedup();
    locked.take_out(why, &idle)?;
    changed.refusal().map_or(Ok(()), Err)
}

impl View<'_> {
    /// The run-time addresses and the bytes of functions' rows in the probe table, as in the
    /// document. Their kind is replaced by `kind` if that is given. Fails if the runtime has no
    /// such table.
    pub(super) fn rows_of(
        &self,
        ids: &[usize],
        kind: Option<Kind>,
    ) -> Result<Vec<(Avma, Vec<u8>)>, SessionError> {
        let table = self.symbol(SYMBOL_PROBES)?;
        let row = |&id: &usize| {
            let mut row = self.document.functions[id].row().to_vec();
            if let Some(kind) = kind {
                let of = &mut row[offset_of!(Probe, kind)];
                *of = *of & !abi::probe::KIND | kind as u8;
            }
            (table.plus((ROW * id) as u64), row)
        };
        Ok(ids.iter().map(row).collect())
    }

    /// Writes the rows of functions into the probe table, as in the document. Fails if they cannot
    /// be written.
    pub(super) fn write_rows(&self, text: Text<'_>, ids: &[usize]) -> Result<(), SessionError> {
        for (at, row) in self.rows_of(ids, None)? {
            write(text, at, &row)?;
            step("row");
        }
        Ok(())
    }

    /// Waits, up to a limit, until the calls of these functions that are measured from their entry
    /// have ended.
    pub(super) fn let_end(&self, ids: &[usize]) {
        const PAUSE: Duration = Duration::from_millis(1);
        if ids.is_empty() {
            return;
        }
        let begin = Instant::now();
        let (mut least, mut since) = (self.open_calls(ids), begin);
        while least > 0 && begin.elapsed() < UNTIL_ENDED && since.elapsed() < NONE_ENDED {
            pause(PAUSE);
            let open = self.open_calls(ids);
            if open < least {
                (least, since) = (open, Instant::now());
            }
        }
    }

    /// Number of calls of these functions that are measured to their return and have not returned.
    pub(super) fn open_calls(&self, ids: &[usize]) -> u64 {
        let used = self.segment.header().records_used.load(Acquire);
        let used = self.segment.used(AREA_RECORDS, used);
        let open = |index: u64| {
            let head = self.segment.record(index)?;
            let schema = head.schema.load(Relaxed);
            let path = self.segment.node(head.path.load(Acquire))?;
            let function = path.key.load(Relaxed) & !NODE_IS_PATH;
            let is_meant = ids.contains(&usize::try_from(function).ok()?);
            if !is_meant || !self.document.needs_exits(schema) {
                return None;
            }
            let ended = head
                .closed
                .load(Acquire)
                .saturating_add(head.unwound.load(Acquire));
            let begun = head
                .entered
                .load(Acquire)
                .saturating_add(head.moved_in.load(Acquire));
            let begun = begun.saturating_sub(head.moved_out.load(Acquire));
            Some(begun.saturating_sub(ended))
        };
        (0..used).filter_map(open).fold(0, u64::saturating_add)
    }

    /// Ids of functions that are in and half changed: their exits are partly in, or the runtime's
    /// row differs from the document. Each comes with the generation in its row. Fails if the
    /// target or the journal cannot be read.
    pub(super) fn half_turned(&self, memory: &Memory) -> Result<Vec<(usize, u32)>, SessionError> {
        let functions = &self.document.functions;
        let table = self.symbol(SYMBOL_PROBES)?;
        let rows = read(memory, table, ROW * functions.len())?;
        let standing = Journal(self.segment).standing()?;
        let mut half = Vec::new();
        for ((id, function), row) in functions.iter().enumerate().zip(rows.chunks_exact(ROW)) {
            let generation = row[..4].try_into().map_or(0, u32::from_le_bytes);
            let may_be_half = function.role.is_shown() && function.is_in() && generation != 0;
            if !may_be_half {
                continue;
            }
            let is_known = generation == function.generation
                || function.has_only_entry() && generation == function.generation + 1;
            let told = ..offset_of!(Probe, lending);
            let is_told = row[told] == function.row()[told];
            let out = function.sites_out().iter().flat_map(|s| &s.patches);
            let mut out = out.filter(|&patch| standing.binary_search(patch).is_ok());
            // A landing stays until the signal handlers that return to it have returned.
            let sites: Vec<&SiteDoc> = function.sites_out().iter().collect();
            let landings = with_hosts(&sites, self.landings_of(sites.iter().copied())?);
            let is_standing = out.any(|patch| !landings.contains_key(patch));
            if is_known && (is_standing || !is_told) {
                half.push((id, generation));
            }
        }
        Ok(half)
    }
}

/// Writes all schemas and counters to the runtime. Fails if they cannot be written.
pub(super) fn write_schemas(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    populate_columns(locked)?;
    let mut writes = Vec::new();
    for (symbol, bytes) in locked.document.tables_of_schemas() {
        writes.push((locked.symbol(symbol)?, bytes));
    }
    locked.write_own(&writes)
}

/// Writes the locations of values into the runtime's table, by function id.
fn write_details(locked: &mut Locked<'_>, values: &[(usize, u64)]) -> Result<(), SessionError> {
    let details = locked.symbol(SYMBOL_DETAILS)?;
    let writes = values.iter().map(|&(id, values)| {
        let at = details.plus(8 * id as u64);
        (at, values.to_le_bytes().to_vec())
    });
    locked.write_own(&writes.collect::<Vec<_>>())
}

/// Patches the exits of functions in short stops. Returns the changes whose exits are in.
fn put_exits_in(
    locked: &mut Locked<'_>,
    why: &str,
    mut turns: Vec<Turn>,
    changed: &mut Changed,
) -> Result<Vec<Turn>, SessionError> {
    let mut entered = Vec::new();
    if turns.is_empty() {
        return Ok(entered);
    }
    let all: Vec<usize> = turns.iter().map(|turn| turn.id).collect();
    fill_traps(locked, &all)?;
    let space = Arc::clone(&locked.space);
    let code = CallCode::find(&locked.process, &space.maps()?, space.memory())?;
    while !turns.is_empty() {
        let ids: Vec<usize> = turns.iter().map(|turn| turn.id).collect();
        let rest = turns.split_off(in_one_stop(&locked.document, ids.iter()));
        let mut batch = std::mem::replace(&mut turns, rest);
        while !batch.is_empty() {
            let ids: Vec<usize> = batch.iter().map(|turn| turn.id).collect();
            let done = locked.in_stop(why, |locked, stopped, stacks| {
                handle_traps(locked, &code, stopped, &ids)?;
                locked
                    .view()
                    .write_in(stopped, stacks, (&ids, Part::Exits))?;
                for &turn in &batch {
                    note_turn(&mut locked.document, turn);
                    let function = &mut locked.document.functions[turn.id];
                    function.reach = Reach::Whole;
                    // Distinguishes new calls from those whose returns were not seen.
                    function.generation += 1;
                }
                locked.view().write_rows(stopped.text(), &ids)
            });
            match done {
                Ok(()) => entered.append(&mut batch),
                Err(SessionError::InTheWay(what)) => {
                    batch.retain(|turn| !what.functions().contains(&turn.id));
                    for &id in what.functions() {
                        let name = locked.document.functions[id].name.clone();
                        changed.unchanged.push((name, what.reason().into()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(entered)
}

/// Removes the exits that the document says are out.
fn take_exits_out(locked: &mut Locked<'_>, why: &str, ids: &[usize]) -> Result<(), SessionError> {
    if ids.is_empty() {
        return Ok(());
    }
    stop_lending(locked, ids)?;
    let mut ids = ids.to_vec();
    while !ids.is_empty() {
        let rest = ids.split_off(in_one_stop(&locked.document, ids.iter()));
        let batch = std::mem::replace(&mut ids, rest);
        locked.in_stop(why, |locked, stopped, stacks| {
            locked.view().write_exits_out(stopped, stacks, &batch)?;
            locked.view().write_rows(stopped.text(), &batch)
        })?;
    }
    Ok(())
}

/// Finishes changes that a killed command left half done. Exits that are not wholly in are removed,
/// and the runtime's rows become those of the document. Fails if the process cannot be read or
/// changed.
pub(super) fn recover_remeasured(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let half = locked.view().half_turned(locked.space.memory())?;
    if half.is_empty() {
        return Ok(());
    }
    for &(id, generation) in &half {
        locked.document.functions[id].generation = generation;
    }
    let ids: Vec<usize> = half.iter().map(|&(id, _)| id).collect();
    locked.segment.write_document(&locked.document)?;
    write_schemas(locked)?;
    let values = |&id: &usize| (id, locked.document.functions[id].values);
    let values: Vec<(usize, u64)> = ids.iter().map(values).collect();
    write_details(locked, &values)?;
    take_exits_out(locked, "recover", &ids)?;
    begin_epoch(locked)?;
    switch_lending(locked)?;
    locked.segment.write_document(&locked.document)?;
    Ok(())
}
