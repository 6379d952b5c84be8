//! The number of inlined copies of functions: DWARF 5 section 3.3.8.2, inlined subroutine entries.

use super::Lines;
use super::bytes::Reader;
use super::sections::Debug;
use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Reader as _, Section as _, Unit, constants};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeSet, HashMap};
use std::thread;

/// The most threads that read the DWARF of a file. The user waits for them, and other programs need
/// the processors, too.
const MOST_THREADS: usize = 4;

/// The most links from an entry to the one with its name: abstract origin, then specification.
pub(super) const LINKS: usize = 4;

impl<'d> Lines<'d> {
    /// The number of inlined copies in the file, for functions with copies whose linkage name
    /// `is_wanted`. The DWARF of GCC gives no linkage name to C++ functions with internal linkage,
    /// and another one to constructors and destructors (`D4` for `D1` and `D2`). Their names come
    /// from `name_at`: the linkage name of the function at an address. Reads all of the DWARF, or
    /// none if it has more than `most` bytes. Skips unreadable parts.
    pub fn inlined_copies(
        &self,
        most: usize,
        is_wanted: impl Fn(&[u8]) -> bool + Sync,
        name_at: impl Fn(u64) -> Option<String> + Sync,
    ) -> HashMap<String, u64> {
        if self.debug.dwarf().debug_info.reader().len() > most {
            return HashMap::new();
        }
        let read = self.read_functions(is_wanted, name_at);
        let mut copies = HashMap::new();
        for (place, name) in wanted(&read) {
            let counts = read.iter().filter_map(|part| part.counts.get(&place));
            let count: u64 = counts.sum();
            if count > 0 {
                *copies.entry(name.to_owned()).or_default() += count;
            }
        }
        copies
    }

    /// The entries of functions with wanted names, by their offsets in `.debug_info`. An entry
    /// occurs once for each name.
    pub(super) fn functions(
        &self,
        is_wanted: impl Fn(&[u8]) -> bool + Sync,
        name_at: impl Fn(u64) -> Option<String> + Sync,
    ) -> Vec<(usize, String)> {
        let read = self.read_functions(is_wanted, name_at);
        let found = wanted(&read).into_iter();
        found
            .map(|(place, name)| (place, name.to_owned()))
            .collect()
    }

    fn read_functions(
        &self,
        is_wanted: impl Fn(&[u8]) -> bool + Sync,
        name_at: impl Fn(u64) -> Option<String> + Sync,
    ) -> Vec<Functions> {
        let parts = thread::available_parallelism().map_or(1, usize::from);
        let parts = parts.min(MOST_THREADS);
        let debug = &self.debug;
        let wanted_at = |at: u64| name_at(at).filter(|name| is_wanted(name.as_bytes()));
        on_threads(parts, |part| {
            debug.read_functions(part, parts, &is_wanted, &wanted_at)
        })
    }
}

/// The name of a function's entry: the linkage name if `is_linkage`, otherwise the name in the
/// source.
struct Name {
    text: String,
    is_linkage: bool,
}

/// The facts in a part of the DWARF. Entries are identified by their offsets.
#[derive(Default)]
struct Functions {
    /// The number of inlined subroutines that are copies of an entry.
    counts: FxHashMap<usize, u64>,
    /// The entries with a wanted name.
    names: FxHashMap<usize, Name>,
    /// Links from entries without a linkage name to the entries that they complete.
    links: Vec<(usize, usize)>,
    /// Entries that copies refer to, by the wanted name at the address of their out-of-line
    /// instance (DWARF 5 section 3.3.8.3).
    instances: Vec<(usize, String)>,
}

/// The entries of functions with wanted names. Each entry occurs once for each name.
fn wanted(read: &[Functions]) -> Vec<(usize, &str)> {
    let instances = read.iter().flat_map(|part| &part.instances);
    let by_address: BTreeSet<(usize, &str)> = instances
        .map(|(place, name)| (*place, name.as_str()))
        .collect();
    // Each copy counts once per function, even if the symbols and the entry of a function have
    // different names.
    let places: FxHashSet<usize> = by_address.iter().map(|&(place, _)| place).collect();
    let by_entry = named(read).into_iter();
    let by_entry = by_entry.filter(|(place, _)| !places.contains(place));
    by_entry.chain(by_address).collect()
}

/// The names of all entries with a wanted name, of their own or of the entry that they complete.
fn named(read: &[Functions]) -> FxHashMap<usize, &str> {
    let all = read.iter().flat_map(|part| &part.names);
    let mut names: FxHashMap<usize, &Name> = all.map(|(&at, name)| (at, name)).collect();
    for _ in 0..LINKS {
        let mut found = Vec::new();
        for &(from, to) in read.iter().flat_map(|part| &part.links) {
            let (own, other) = (names.get(&from), names.get(&to));
            let is_better = |other: &&&Name| own.is_none_or(|n| !n.is_linkage && other.is_linkage);
            found.extend(other.filter(is_better).map(|&other| (from, other)));
        }
        if found.is_empty() {
            break;
        }
        names.extend(found);
    }
    names
        .into_iter()
        .map(|(at, n)| (at, n.text.as_str()))
        .collect()
}

impl Debug<'_> {
    /// Reads every `parts`-th unit, beginning with number `part`.
    fn read_functions(
        &self,
        part: usize,
        parts: usize,
        is_wanted: &impl Fn(&[u8]) -> bool,
        wanted_at: &impl Fn(u64) -> Option<String>,
    ) -> Functions {
        let dwarf = self.dwarf();
        let mut functions = Functions::default();
        let mut all = dwarf.units();
        let headers = std::iter::from_fn(|| all.next().ok().flatten());
        for header in headers.skip(part).step_by(parts) {
            if let Ok(unit) = dwarf.unit(header) {
                // Unreadable parts are skipped.
                let _ = functions.read(&dwarf, &unit, is_wanted, wanted_at);
            }
        }
        functions
    }
}

/// Runs `work` for each of `parts` parts on its own thread. Returns the results in the order of the
/// parts.
fn on_threads<R: Send>(parts: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    if parts < 2 {
        return (0..parts).map(work).collect();
    }
    thread::scope(|scope| {
        let work = &work;
        let begun: Vec<_> = (0..parts)
            .map(|part| scope.spawn(move || work(part)))
            .collect();
        // A panic in a thread continues in this one.
        let done = begun.into_iter().map(|thread| thread.join());
        done.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl Functions {
    /// Reads a unit, up to the first unreadable entry.
    fn read<'d>(
        &mut self,
        dwarf: &Dwarf<Reader<'d>>,
        unit: &Unit<Reader<'d>>,
        is_wanted: &impl Fn(&[u8]) -> bool,
        wanted_at: &impl Fn(u64) -> Option<String>,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let at = entries.next_offset().to_debug_info_offset(&unit.header);
            let Some(entry) = entries.read_abbreviation()? else {
                continue;
            };
            let is_copy = entry.tag() == constants::DW_TAG_inlined_subroutine;
            if !is_copy && entry.tag() != constants::DW_TAG_subprogram {
                entries.skip_attributes(entry.attributes())?;
                continue;
            }
            let (mut linkage, mut plain, mut link, mut start) = (None, None, None, None);
            for attribute in entry.attributes() {
                let into = match attribute.name() {
                    constants::DW_AT_abstract_origin | constants::DW_AT_specification => {
                        let value = entries.read_attribute(*attribute)?.value();
                        link = link.or_else(|| place_of(unit, value));
                        continue;
                    }
                    constants::DW_AT_linkage_name if !is_copy => &mut linkage,
                    constants::DW_AT_name if !is_copy => &mut plain,
                    constants::DW_AT_low_pc if !is_copy => &mut start,
                    _ => {
                        entries.skip_attributes(std::slice::from_ref(attribute))?;
                        continue;
                    }
                };
                *into = Some(entries.read_attribute(*attribute)?.value());
            }
            if is_copy {
                if let Some(origin) = link {
                    *self.counts.entry(origin.0).or_default() += 1;
                }
                continue;
            }
            let Some(at) = at else {
                continue;
            };
            let start = start.and_then(|value| dwarf.attr_address(unit, value).ok()?);
            if let Some(name) = start.and_then(wanted_at) {
                self.instances.push((link.unwrap_or(at).0, name));
            }
            let is_linkage = linkage.is_some();
            if let Some(value) = linkage.or(plain)
                && let Ok(text) = dwarf.attr_string(unit, value)
                && is_wanted(text.bytes())
            {
                let text = String::from_utf8_lossy(text.bytes()).into_owned();
                self.names.insert(at.0, Name { text, is_linkage });
            }
            if !is_linkage && let Some(to) = link {
                self.links.push((at.0, to.0));
            }
        }
        Ok(())
    }
}

/// The offset in `.debug_info` of the entry that an attribute refers to. `None` if it refers to
/// none in this file.
pub(super) fn place_of<'d>(
    unit: &Unit<Reader<'d>>,
    to: AttributeValue<Reader<'d>>,
) -> Option<DebugInfoOffset> {
    match to {
        AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&unit.header),
        AttributeValue::DebugInfoRef(offset) => Some(offset),
        _ => None,
    }
}
