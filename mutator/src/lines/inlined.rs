//! How often functions have been inlined: DWARF 5 section 3.3.8.2, inlined subroutine entries.

use super::Lines;
use super::bytes::Reader;
use super::sections::Debug;
use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, Reader as _, Section as _, Unit, UnitHeader, constants,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use std::thread;

/// Threads that read the DWARF of a file, at most: who attaches waits for them, and so do other programs for the processors.
const MOST_THREADS: usize = 4;

/// Links from an entry to the one that bears its name: abstract origin, then specification.
const LINKS: usize = 4;

impl<'d> Lines<'d> {
    /// Inlined copies in the file by linkage name (the plain name in C); functions that have none
    /// do not come. Reads all of the DWARF, of which nothing is read if that is more than so many bytes: what
    /// cannot be read is passed over.
    pub fn inlined_copies(&self, most: usize) -> HashMap<String, u64> {
        if self.debug.dwarf().debug_info.reader().len() > most {
            return HashMap::new();
        }
        let parts = thread::available_parallelism().map_or(1, usize::from);
        let parts = parts.min(MOST_THREADS);
        let debug = &self.debug;
        let counted = on_threads(parts, |part| debug.count_origins(part, parts));
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        for (origin, count) in counted.into_iter().flatten() {
            *counts.entry(origin).or_default() += count;
        }
        // By place, so that those of one unit come together.
        let counts: Vec<(usize, u64)> = counts.into_iter().collect();
        let each = counts.len().div_ceil(parts).max(1);
        let chunks: Vec<&[(usize, u64)]> = counts.chunks(each).collect();
        let named = on_threads(chunks.len(), |part| debug.name_origins(chunks[part]));
        let mut copies = HashMap::new();
        for (name, count) in named.into_iter().flatten() {
            *copies.entry(name).or_default() += count;
        }
        copies
    }
}

impl Debug<'_> {
    /// What the inlined subroutines of every `parts`-th unit are copies of, by the place of its entry.
    fn count_origins(&self, part: usize, parts: usize) -> FxHashMap<usize, u64> {
        let mut units = Units::of(self.dwarf());
        let mut counts = FxHashMap::default();
        for index in (part..units.headers.len()).step_by(parts) {
            if let Some(unit) = units.open(index) {
                // What cannot be read is passed over.
                let _ = count_origins(unit, &mut counts);
            }
        }
        counts
    }

    /// The names of the entries at these places, each with what stands beside it.
    fn name_origins(&self, origins: &[(usize, u64)]) -> FxHashMap<String, u64> {
        let mut units = Units::of(self.dwarf());
        let mut copies = FxHashMap::default();
        for &(origin, count) in origins {
            if let Some(name) = units.name_of(DebugInfoOffset(origin)) {
                *copies.entry(name).or_default() += count;
            }
        }
        copies
    }
}

/// What comes of so many parts of a work, each done on a thread of its own.
fn on_threads<R: Send>(parts: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    if parts < 2 {
        return (0..parts).map(work).collect();
    }
    thread::scope(|scope| {
        let work = &work;
        let begun: Vec<_> = (0..parts)
            .map(|part| scope.spawn(move || work(part)))
            .collect();
        // What a thread has panicked with is this one's as well.
        let done = begun.into_iter().map(|thread| thread.join());
        done.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Adds up what the inlined subroutines of a unit are copies of, by the place of its entry; up to what cannot be
/// read.
fn count_origins(unit: &Unit<Reader<'_>>, counts: &mut FxHashMap<usize, u64>) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let Some(entry) = entries.read_abbreviation()? else {
            continue;
        };
        if entry.tag() != constants::DW_TAG_inlined_subroutine {
            entries.skip_attributes(entry.attributes())?;
            continue;
        }
        for attribute in entry.attributes() {
            let attribute = entries.read_attribute(*attribute)?;
            let is_origin = attribute.name() == constants::DW_AT_abstract_origin;
            if is_origin && let Some(at) = place_of(unit, attribute.value()) {
                *counts.entry(at.0).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// Where the entry is that an attribute leads to.
fn place_of<'d>(
    unit: &Unit<Reader<'d>>,
    to: AttributeValue<Reader<'d>>,
) -> Option<DebugInfoOffset> {
    match to {
        AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&unit.header),
        AttributeValue::DebugInfoRef(offset) => Some(offset),
        _ => None,
    }
}

/// The units of a file, of which one at a time is open.
struct Units<'d> {
    dwarf: Dwarf<Reader<'d>>,
    /// With their places, ascending.
    headers: Vec<(usize, UnitHeader<Reader<'d>>)>,
    opened: Option<(usize, Unit<Reader<'d>>)>,
}

impl<'d> Units<'d> {
    fn of(dwarf: Dwarf<Reader<'d>>) -> Self {
        let mut headers = Vec::new();
        let mut all = dwarf.units();
        while let Ok(Some(header)) = all.next() {
            headers.extend(header.debug_info_offset().map(|at| (at.0, header)));
        }
        Self {
            dwarf,
            headers,
            opened: None,
        }
    }

    fn open(&mut self, index: usize) -> Option<&Unit<Reader<'d>>> {
        if self
            .opened
            .as_ref()
            .is_none_or(|(known, _)| *known != index)
        {
            let (_, header) = self.headers.get(index)?;
            self.opened = Some((index, self.dwarf.unit(header.clone()).ok()?));
        }
        self.opened.as_ref().map(|(_, unit)| unit)
    }

    /// The name of the entry there, its own or that of one it leads to.
    fn name_of(&mut self, at: DebugInfoOffset) -> Option<String> {
        let (mut at, mut plain) = (at, None);
        for _ in 0..LINKS {
            let after = self.headers.partition_point(|(start, _)| *start <= at.0);
            let index = after.checked_sub(1)?;
            self.open(index)?;
            let (_, unit) = self.opened.as_ref()?;
            let entry = unit.entry(at.to_unit_offset(&unit.header)?).ok()?;
            let text = |name| {
                let text = self.dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
                Some(String::from_utf8_lossy(&text).into_owned())
            };
            if let Some(linkage) = text(constants::DW_AT_linkage_name) {
                return Some(linkage);
            }
            plain = plain.or_else(|| text(constants::DW_AT_name));
            let next = entry
                .attr_value(constants::DW_AT_specification)
                .or_else(|| entry.attr_value(constants::DW_AT_abstract_origin));
            match next {
                Some(next) => at = place_of(unit, next)?,
                None => break,
            }
        }
        plain
    }
}
