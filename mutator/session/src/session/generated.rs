//! Unwind rules of return addresses in generated code, which is in no file.

use std::sync::atomic::Ordering::Acquire;

use patcher::Avma;
use unwind::Rule;

use super::locked::Locked;
use super::tables::{Table, generated_answer, publish_all, table_key};
use super::{Session, SessionError};
use crate::segment::Document;
use ipath_profile::clock;
use ipath_symbols::jit::jvm::{self, HotSpot};
use ipath_target::process::identity::FileId;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Mapping, Process};

/// A return address, and the distance in bytes from the stack pointer to the target of the frame
/// pointer. Negative if unknown.
pub(super) type Call = (Avma, i64);

/// The search for generators of code with unwind rules in a process. The only known one is the Java
/// virtual machine.
#[derive(Default)]
pub(super) struct Generated {
    /// A virtual machine that has finished its setup. `None` if none is known.
    machine: Option<HotSpot>,
    /// Number of mappings that the runtime had seen at the last search.
    seen: u64,
    /// True if a virtual machine has not finished its setup.
    is_expected: bool,
}

impl Generated {
    /// Looks for a virtual machine that may have been loaded, before rules of its code are asked
    /// for. Fails if the process cannot be read or the session cannot be locked.
    pub(super) fn look_ahead(&mut self, session: &mut Session) -> Result<(), SessionError> {
        let seen = session.segment.header().modules_used.load(Acquire);
        let is_settled = self.machine.is_some() || seen == self.seen && !self.is_expected;
        if is_settled {
            return Ok(());
        }
        let maps = session.process.maps()?;
        let modules = modules(&session.process, &maps);
        self.seen = seen;
        self.is_expected = modules.iter().any(jvm::is_one);
        self.look(session, &modules)
    }

    /// Looks for a virtual machine that was not set up when functions were added. Publishes its
    /// conventions. Fails if the session cannot be locked or written.
    pub(super) fn look(
        &mut self,
        session: &mut Session,
        modules: &[Module],
    ) -> Result<(), SessionError> {
        let found = modules.iter().find(|module| jvm::is_one(module));
        let Some(module) = found.filter(|_| self.machine.is_none()) else {
            return Ok(());
        };
        let memory = session.process.open_memory().ok();
        let Some(machine) = memory.and_then(|memory| HotSpot::read(module, &memory)) else {
            return Ok(());
        };
        session.locked_as_it_is(|locked| {
            publish_machine(locked, module, &machine)?;
            Ok(locked.segment().write_document(locked.document())?)
        })?;
        self.machine = Some(machine);
        Ok(())
    }

    /// Returns the return addresses of the calls in generated code, with their encoded rules. For
    /// code of a virtual machine, only its own tables are used.
    pub(super) fn rules(
        &self,
        process: &Process,
        modules: &[Module],
        maps: &[Mapping],
        asked: &[Call],
    ) -> Vec<(Avma, u64)> {
        /// Distance in bytes from the return address within which returns of its function are
        /// sought.
        const NEAR: u64 = 32 << 10;
        let Ok(memory) = process.open_memory() else {
            return Vec::new();
        };
        let has_machine = modules.iter().any(jvm::is_one);
        let rule = |&(at, distance): &Call| {
            let is_in = |m: &&Mapping| m.execute && !m.name.starts_with('/') && m.contains(at);
            let range = &maps.iter().find(is_in)?.range;
            if has_machine {
                let rule = self.machine.as_ref()?.rule_at(at, &memory)?;
                return Some((at, rule.encode()));
            }
            let start = range.start.max(Avma(at.0.saturating_sub(NEAR)));
            let end = range.end.min(at.plus(NEAR));
            let code = memory.read_vec(start, (end.0 - start.0) as usize).ok()?;
            Some((at, generated_answer(start, &code, at, distance)?))
        };
        asked.iter().filter_map(rule).collect()
    }
}

/// Publishes the conventions of a virtual machine's code, if one is in these modules and set up.
/// Does nothing if they are published already. Fails if the session's memory cannot be written.
pub(super) fn publish_conventions(
    locked: &mut Locked<'_>,
    modules: &[Module],
) -> Result<(), SessionError> {
    let found = modules.iter().find(|module| jvm::is_one(module));
    let Some(module) = found.filter(|module| !has_conventions(&locked.document, module)) else {
        return Ok(());
    };
    match HotSpot::read(module, locked.space.memory()) {
        Some(machine) => publish_machine(locked, module, &machine),
        None => Ok(()),
    }
}

/// Publishes the conventions of a virtual machine that has been read.
fn publish_machine(
    locked: &mut Locked<'_>,
    module: &Module,
    machine: &HotSpot,
) -> Result<(), SessionError> {
    if has_conventions(&locked.document, module) {
        return Ok(());
    }
    let encoded = |rules: Vec<(Avma, Rule)>| {
        let rows = rules.into_iter().map(|(at, rule)| (at, rule.encode()));
        rows.collect()
    };
    let conventions = machine.conventions();
    let tables = [
        Table::of_conventions(conventions.range, encoded(conventions.rows)),
        Table::of_rules(encoded(machine.rules())),
    ];
    publish_all(locked, &tables, clock::tsc())?;
    locked.document.tables.push(key_of_code(module));
    Ok(())
}

/// True if the conventions of the virtual machine's code are published.
fn has_conventions(document: &Document, module: &Module) -> bool {
    document.tables.contains(&key_of_code(module))
}

/// A second key of a virtual machine's module. The document lists it once the tables of the
/// generated code are published.
fn key_of_code(module: &Module) -> (u64, String, FileId) {
    let (start, path, file) = table_key(module);
    (start, format!("{path} (code)"), file)
}
