//! Publishing unwind tables of a process's modules.

use super::SessionError;
use super::generated::publish_conventions;
use super::locked::Locked;
use super::registered::publish_registered;
use super::tables::{
    Table, in_pieces, index, is_found, is_mapped_in, publish_all, rules, table_key,
};
use ipath_profile::clock;
use ipath_symbols::images;
use ipath_target::process::modules::Module;

/// Publishes tables for the modules that need them and have none yet, and for generated code. Lists
/// the modules in the document, but does not write it. Fails if the process cannot be read or the
/// session's memory cannot be written.
pub(super) fn publish_tables(
    locked: &mut Locked<'_>,
    modules: &[Module],
) -> Result<(), SessionError> {
    let seen = clock::tsc();
    let maps = locked.space.maps()?;
    let is_there = |module: &&Module| module.code.iter().all(|code| is_mapped_in(&maps, code));
    let mut tables = Vec::new();
    let mut all_rules = Vec::new();
    for module in modules.iter().filter(is_there) {
        let key = table_key(module);
        if locked.document.tables.contains(&key) {
            continue;
        }
        let Ok(opened) = images::of_module(module) else {
            continue;
        };
        let Some(bias) = module.bias(opened.image()) else {
            continue;
        };
        if !is_found(module, opened.image()) {
            tables.extend(index(module, opened.image(), bias));
        }
        all_rules.push(rules(&opened, bias));
        locked.document.tables.push(key);
    }
    tables.extend(in_pieces(all_rules).into_iter().map(Table::of_rules));
    publish_all(locked, &tables, seen)?;
    publish_registered(locked)?;
    publish_conventions(locked, modules)
}
