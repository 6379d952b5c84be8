//! How often functions have been inlined: DWARF 5 section 3.3.8.2, inlined subroutine entries.

use super::{Lines, Reader};
use gimli::{AttributeValue, Dwarf, Unit, UnitOffset, constants};
use std::collections::HashMap;

/// Links from an entry to the one that bears its name: abstract origin, then specification.
const LINKS: usize = 4;

impl<'d> Lines<'d> {
    /// Inlined copies in the file by linkage name (the plain name in C); functions that have none
    /// do not come. Reads all of the DWARF: what cannot be read is passed over.
    pub fn inlined_copies(&self) -> HashMap<String, u64> {
        let dwarf = self.debug.dwarf();
        let mut copies = HashMap::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Ok(unit) = dwarf.unit(header) else {
                continue;
            };
            for (origin, count) in origins(&unit) {
                if let Some(name) = name_of(&dwarf, &unit, origin) {
                    *copies.entry(name).or_default() += count;
                }
            }
        }
        copies
    }
}

type Origin<'d> = AttributeValue<Reader<'d>>;

/// What the inlined subroutines of a unit are copies of, with their numbers.
fn origins<'d>(unit: &Unit<Reader<'d>>) -> Vec<(Origin<'d>, u64)> {
    let mut counts: HashMap<usize, (Origin<'d>, u64)> = HashMap::new();
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() != constants::DW_TAG_inlined_subroutine {
            continue;
        }
        let Some(origin) = entry.attr_value(constants::DW_AT_abstract_origin) else {
            continue;
        };
        let key = match origin {
            // An offset in the unit and one in the section are kept apart by the lowest bit.
            AttributeValue::UnitRef(offset) => offset.0 << 1,
            AttributeValue::DebugInfoRef(offset) => offset.0 << 1 | 1,
            _ => continue,
        };
        counts.entry(key).or_insert((origin, 0)).1 += 1;
    }
    counts.into_values().collect()
}

fn name_of<'d>(
    dwarf: &Dwarf<Reader<'d>>,
    unit: &Unit<Reader<'d>>,
    origin: Origin<'d>,
) -> Option<String> {
    let mut at = origin;
    let mut other: Option<Unit<Reader<'d>>> = None;
    let mut plain = None;
    for _ in 0..LINKS {
        let offset: UnitOffset = match at {
            AttributeValue::UnitRef(offset) => offset,
            AttributeValue::DebugInfoRef(offset) => {
                let mut headers = dwarf.units();
                let header = loop {
                    let header = headers.next().ok()??;
                    if offset.to_unit_offset(&header).is_some() {
                        break header;
                    }
                };
                let found = dwarf.unit(header).ok()?;
                let offset = offset.to_unit_offset(&found.header)?;
                other = Some(found);
                offset
            }
            _ => return None,
        };
        let unit = other.as_ref().unwrap_or(unit);
        let entry = unit.entry(offset).ok()?;
        let text = |name| {
            let text = dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
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
            Some(next) => at = next,
            None => break,
        }
    }
    plain
}
