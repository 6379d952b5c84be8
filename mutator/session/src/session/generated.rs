//! Rules of return addresses in code that is in no file.

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

/// A return address, and the bytes from the stack pointer to where the frame pointer points to; negative where that is not known.
pub(super) type Call = (Avma, i64);

/// Who generates code in a process, as far as that is known.
#[derive(Default)]
pub(super) struct Generated {
    /// A virtual machine that has been seen to be set up.
    machine: Option<HotSpot>,
    /// Mappings that the runtime had seen when it was last looked for one.
    seen: u64,
    /// There is one that is not set up yet.
    is_expected: bool,
}

impl Generated {
    /// The same as [`Generated::look`] before anything is asked of its code, where one may have come.
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

    /// Looks for a virtual machine, and publishes its conventions, which was not set up when functions were added.
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

    /// The rules of calls in such code. What a virtual machine does not tell of its own is not guessed.
    pub(super) fn rules(
        &self,
        process: &Process,
        modules: &[Module],
        maps: &[Mapping],
        asked: &[Call],
    ) -> Vec<(Avma, u64)> {
        /// Bytes before and after a return address that its function's returns are looked for in.
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

/// Publishes what holds in the code of a virtual machine among these modules, where it is set up.
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

/// The same of one that has been read.
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

fn has_conventions(document: &Document, module: &Module) -> bool {
    document.tables.contains(&key_of_code(module))
}

/// What tells, beside the tables of its file, that those of a virtual machine's code have been published.
fn key_of_code(module: &Module) -> (u64, String, FileId) {
    let (start, path, file) = table_key(module);
    (start, format!("{path} (code)"), file)
}
