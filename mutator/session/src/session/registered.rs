//! Unwind rules of code that the target generates, from the unwind entries that it registers.
//!
//! The runtime drops a table when the target deregisters its entries (`__deregister_frame`,
//! `__jit_debug_register_code`), and when the code's mapping disappears. If these functions have no
//! probe, the command drops the table at its next look.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use abi::segment::TABLE_OF_REGISTERED;
use patcher::flow::Registered;
use patcher::{Avma, Svma};

use super::locked::Locked;
use super::tables::{Table, publish_all};
use super::{Session, SessionError};
use crate::segment::RegisteredTable;
use ipath_profile::clock;
use ipath_symbols::jit::{Entries, Sources, makes_code};
use ipath_symbols::recipes::rule;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Mapping, Memory};

/// The shortest time between two looks without a question. A pause also lasts at least `SHARE`
/// times as long as the look before it.
const PERIOD: Duration = Duration::from_millis(100);
/// See [`PERIOD`].
const SHARE: u32 = 20;

/// The most tables of one process at a time.
const MAX_TABLES: usize = 1 << 12;

/// The registrations of a process that were read at the last look.
#[derive(Default)]
pub(super) struct RegisteredCode {
    sources: Sources,
    /// The entries of each registration, as they were last read, by their key.
    known: HashMap<Avma, Entries>,
    /// The earliest time of the next look without a question. `None` before the first look.
    rests_until: Option<Instant>,
    /// The time of the last deregistration before the last look, in ticks of the time-stamp
    /// counter.
    taken_back: u64,
}

/// Tables to drop and tables to publish.
#[derive(Default)]
struct Change {
    over: Vec<RegisteredTable>,
    new: Vec<(Entries, Vec<Registered>)>,
}

impl RegisteredCode {
    /// True if it is time to look without a question.
    pub(super) fn is_due(&self, session: &Session) -> bool {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        !rests || session.segment.taken_back() != self.taken_back
    }

    /// Publishes tables for new registrations, and drops those of entries that are gone. Does
    /// nothing if the process's memory cannot be opened. Fails if the session cannot be locked or
    /// written.
    pub(super) fn look(
        &mut self,
        session: &mut Session,
        modules: &[Module],
        maps: &[Mapping],
    ) -> Result<(), SessionError> {
        let begun = Instant::now();
        self.taken_back = session.segment.taken_back();
        let (change, seen) = match session.process.open_memory() {
            Ok(memory) => self.change(&session.segment.registered(), modules, maps, &memory),
            Err(_) => return Ok(()),
        };
        if !change.over.is_empty() || !change.new.is_empty() {
            session.locked_as_it_is(|locked| change_registered(locked, &change, seen))?;
        }
        self.rests_until = Some(Instant::now() + PERIOD.max(begun.elapsed() * SHARE));
        Ok(())
    }

    /// Reads the current registrations. Returns the change of the published tables, and the
    /// time-stamp counter before the registrations were read.
    fn change(
        &mut self,
        published: &[RegisteredTable],
        modules: &[Module],
        maps: &[Mapping],
        memory: &Memory,
    ) -> (Change, u64) {
        let seen = clock::tsc();
        let mut change = Change::default();
        if !maps.iter().any(makes_code) {
            change.over.extend(published.iter().cloned());
            self.known.clear();
            return (change, seen);
        }
        let found = self.sources.read(modules, maps, memory);
        let is_found = |key: &Avma| found.iter().any(|entries| entries.key == *key);
        self.known.retain(|key, _| is_found(key));
        let over = published.iter().filter(|table| !is_found(&table.key));
        change.over.extend(over.cloned());
        for entries in found.into_iter().take(MAX_TABLES) {
            let mut tables = published.iter().filter(|table| table.key == entries.key);
            let table = tables.next();
            if table.is_some() && self.known.get(&entries.key) == Some(&entries) {
                continue;
            }
            let described = entries.described(maps);
            self.known.insert(entries.key, entries.clone());
            let rows = rows(&described);
            if table.map_or(rows.is_empty(), |table| table.rows == rows) {
                continue;
            }
            change.over.extend(table.cloned());
            if !rows.is_empty() {
                change.new.push((entries, described));
            }
        }
        (change, seen)
    }
}

impl RegisteredTable {
    /// True if the table has a rule for a return address.
    pub(super) fn has_rule(&self, at: Avma) -> bool {
        let after = self.rows.partition_point(|row| row.0 < at);
        let row = after.checked_sub(1).and_then(|last| self.rows.get(last));
        row.is_some_and(|row| row.1 != 0)
    }
}

/// Publishes tables for the current registrations, before the runtime asks for rules. Fails if the
/// process cannot be read or the session's memory cannot be written.
pub(super) fn publish_registered(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let maps = locked.space.maps()?;
    if !maps.iter().any(makes_code) {
        return Ok(());
    }
    // All modules are needed: tables of entries that are not found are dropped.
    let modules = modules(locked.space.process(), &maps);
    let published = locked.segment.registered();
    let mut code = RegisteredCode::default();
    let (change, seen) = code.change(&published, &modules, &maps, locked.space.memory());
    change_registered(locked, &change, seen)
}

/// Carries out a change of the published tables. `seen` is the time-stamp counter before the
/// registrations were read.
fn change_registered(
    locked: &mut Locked<'_>,
    change: &Change,
    seen: u64,
) -> Result<(), SessionError> {
    forget_tables(locked, &change.over)?;
    let new = change.new.iter();
    let new = new.map(|(entries, described)| Table::of_registered(entries, described));
    publish_all(locked, &new.collect::<Vec<_>>(), seen)?;
    if locked.segment.taken_back() > seen {
        // The new entries may have been deregistered after they were read.
        let is_new = |table: &RegisteredTable| {
            let mut new = change.new.iter();
            new.any(|(entries, _)| entries.key == table.key)
        };
        let tables = locked.segment.registered();
        let doubtful: Vec<_> = tables.into_iter().filter(is_new).collect();
        return forget_tables(locked, &doubtful);
    }
    Ok(())
}

/// Drops tables, and makes the runtime forget rules found by them.
fn forget_tables(locked: &mut Locked<'_>, tables: &[RegisteredTable]) -> Result<(), SessionError> {
    /// The time, in ticks of the time-stamp counter, of a table that does not hold.
    const NEVER: u64 = 0;
    for table in tables {
        locked.segment.drop_registered(table);
    }
    let dropped: Vec<Table> = tables.iter().map(Table::of_dropped).collect();
    publish_all(locked, &dropped, NEVER)
}

impl Table {
    /// The rules of all return addresses that registered entries describe.
    fn of_registered(entries: &Entries, described: &[Registered]) -> Self {
        let end = described.iter().map(|code| code.range.end.0).max();
        let descriptor = entries.descriptor.unwrap_or(Avma(0));
        let rows = rows(described);
        let start = rows.first().map_or(Avma(0), |row| row.0);
        let code = (start, Avma(end.unwrap_or(0)));
        Self::new(TABLE_OF_REGISTERED, code, (entries.key, descriptor), rows)
    }

    /// A table without rules for the code of a dropped table. Publishing it makes the runtime
    /// forget rules in this code.
    fn of_dropped(table: &RegisteredTable) -> Self {
        let rows = vec![(table.code.0, 0)];
        Self::new(TABLE_OF_REGISTERED, table.code, (Avma(0), Avma(0)), rows)
    }
}

/// The first address of each rule, ascending, and the rule. The word 0 follows the end of code. If
/// two descriptions overlap, the one with the lower start counts.
fn rows(described: &[Registered]) -> Vec<(Avma, u64)> {
    let mut all: Vec<&Registered> = described.iter().collect();
    all.sort_by_key(|code| code.range.start);
    let mut rows: Vec<(Avma, u64)> = Vec::new();
    let mut end = Svma(0);
    for code in all {
        if code.range.start < end {
            continue;
        }
        if code.range.start == end {
            // The code continues here.
            rows.pop();
        }
        end = code.range.end;
        let encoded = code.rows.iter().map(|&(at, recipe)| {
            let rule = recipe.map_or(unwind::Rule::Stop(abi::cause::Cause::NoRule), rule);
            (Avma(at.0), rule.encode())
        });
        rows.extend(encoded);
        rows.push((Avma(end.0), 0));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use patcher::flow::{Frame, Recipe};

    #[test]
    fn rows_end_with_their_code() {
        let recipe = |cfa| {
            let caller_frame_pointer = 0;
            Some(Recipe::FromStackPointer(Frame {
                cfa,
                caller_frame_pointer,
            }))
        };
        let code = |start: u64, end: u64, rows: &[(u64, i32)]| Registered {
            range: Svma(start)..Svma(end),
            rows: rows
                .iter()
                .map(|&(at, cfa)| (Svma(at), recipe(cfa)))
                .collect(),
        };
        let found = rows(&[
            code(300, 310, &[(300, 8)]),
            code(100, 200, &[(100, 8), (104, 32)]),
            code(150, 250, &[(150, 48)]),
            code(200, 210, &[(200, 16)]),
        ]);
        let of = |cfa| rule(recipe(cfa).expect("one")).encode();
        let expected = [
            (100, of(8)),
            (104, of(32)),
            (200, of(16)),
            (210, 0),
            (300, of(8)),
            (310, 0),
        ];
        assert_eq!(found, expected.map(|(at, word)| (Avma(at), word)));
    }
}
