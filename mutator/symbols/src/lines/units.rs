//! Reads single units of a DWARF. Of thousands of units in a file, only a few are needed.

use super::bytes::Reader;
use super::sections::Debug;
use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAranges, DebugInfo, DebugInfoOffset, Dwarf,
    Reader as _, Section as _, SectionId, UnitHeader, constants,
};
use patcher::Svma;

/// The bytes of `.debug_abbrev` to read for one unit at first. A unit usually needs a kilobyte.
const ABBREVIATIONS: usize = 64 << 10;

/// The size of an initial length: DWARF 5 section 7.4.
const LENGTH: usize = 12;

/// The code of units by `.debug_aranges` (DWARF 5 section 6.1.2), in order and without overlaps.
/// Overlapping ranges are merged. If they are of several units, the unit of the whole is unknown.
#[derive(Default)]
pub(super) struct Index(Vec<(gimli::Range, Option<DebugInfoOffset>)>);

impl Index {
    /// Reads the section. Unreadable parts are skipped.
    pub(super) fn of(debug: &Debug<'_>) -> Self {
        let aranges = DebugAranges::from(debug.reader(SectionId::DebugAranges, usize::MAX));
        let mut headers = aranges.headers();
        let mut claims = Vec::new();
        while let Ok(Some(header)) = headers.next() {
            let unit = header.debug_info_offset();
            let mut entries = header.entries();
            while let Ok(Some(entry)) = entries.next() {
                claims.push((entry.range(), Some(unit)));
            }
        }
        // The linker leaves ranges of omitted code at 0.
        claims.retain(|(range, _)| 0 < range.begin && range.begin < range.end);
        claims.sort_unstable_by_key(|(range, _)| range.begin);
        let mut apart: Vec<(gimli::Range, Option<DebugInfoOffset>)> = Vec::new();
        for (range, unit) in claims {
            match apart.last_mut() {
                Some((last, of)) if range.begin < last.end => {
                    last.end = last.end.max(range.end);
                    *of = of.filter(|_| *of == unit);
                }
                _ => apart.push((range, unit)),
            }
        }
        Self(apart)
    }

    /// The unit with code at `at`. `None` if it is in no range, or in one of an unknown unit.
    pub(super) fn unit_at(&self, at: Svma) -> Option<DebugInfoOffset> {
        let after = self.0.partition_point(|(range, _)| range.begin <= at.0);
        let (range, unit) = self.0.get(after.checked_sub(1)?)?;
        unit.filter(|_| at.0 < range.end)
    }
}

impl<'d> Debug<'d> {
    /// The DWARF with only this unit, at the start of its `.debug_info`. `None` if its entries
    /// refer to other units, or if it cannot be read.
    pub(super) fn dwarf_of_unit(&self, unit: DebugInfoOffset) -> Option<Dwarf<Reader<'d>>> {
        let info = self.contribution(SectionId::DebugInfo, unit.0)?;
        let unit_only = info.range(unit.0..info.len());
        let header = DebugInfo::from(unit_only.clone()).units().next().ok()??;
        let most = header.debug_abbrev_offset().0.checked_add(ABBREVIATIONS)?;
        let read = |most| {
            let abbrev = DebugAbbrev::from(self.reader(SectionId::DebugAbbrev, most));
            let abbreviations = header.abbreviations(&abbrev).ok()?;
            Some((abbrev, abbreviations))
        };
        let (abbrev, abbreviations) = read(most).or_else(|| read(usize::MAX))?;
        if refers_elsewhere(&abbrev, &header)? {
            return None;
        }
        let line = match line_program(&header, &abbreviations)? {
            Some(at) => self.contribution(SectionId::DebugLine, at)?,
            None => self.reader(SectionId::DebugLine, 0),
        };
        Some(self.dwarf_of(|id| match id {
            SectionId::DebugInfo => unit_only.clone(),
            SectionId::DebugAbbrev => abbrev.reader().clone(),
            SectionId::DebugLine => line.clone(),
            _ => self.reader_of_lines(id),
        }))
    }

    /// A section up to the end of the contribution at offset `at`, which begins with its length.
    /// `None` if it is broken.
    fn contribution(&self, id: SectionId, at: usize) -> Option<Reader<'d>> {
        let mut length = self.reader(id, at.checked_add(LENGTH)?);
        let before = length.len();
        length.skip(at).ok()?;
        let (contents, _) = length.read_initial_length().ok()?;
        let end = (before - length.len()).checked_add(contents)?;
        let upto_end = self.reader(id, end);
        (upto_end.len() >= end).then(|| upto_end.range_to(..end))
    }
}

/// True if entries of the unit may refer to other units, by the forms of their attributes (DWARF 5
/// section 7.5.3). `None` if the abbreviations cannot be read.
fn refers_elsewhere(
    abbrev: &DebugAbbrev<Reader<'_>>,
    header: &UnitHeader<Reader<'_>>,
) -> Option<bool> {
    let mut table = abbrev.reader().clone();
    table.skip(header.debug_abbrev_offset().0).ok()?;
    while table.read_uleb128().ok()? != 0 {
        let (_tag, _has_children) = (table.read_uleb128().ok()?, table.read_u8().ok()?);
        loop {
            let (name, form) = (
                table.read_uleb128_u16().ok()?,
                table.read_uleb128_u16().ok()?,
            );
            match constants::DwForm(form) {
                constants::DW_FORM_ref_addr => return Some(true),
                constants::DW_FORM_implicit_const => drop(table.read_sleb128().ok()?),
                _ if name == 0 && form == 0 => break,
                _ => {}
            }
        }
    }
    Some(false)
}

/// The offset in `.debug_line` of the unit's line number program. `Some(None)` if there is none,
/// `None` if the unit cannot be read.
fn line_program(
    header: &UnitHeader<Reader<'_>>,
    abbreviations: &Abbreviations,
) -> Option<Option<usize>> {
    let mut entries = header.entries(abbreviations);
    entries.next_entry().ok()?;
    let value = entries.current()?.attr_value(constants::DW_AT_stmt_list);
    match value {
        Some(AttributeValue::DebugLineRef(at)) => Some(Some(at.0)),
        Some(_) => None,
        None => Some(None),
    }
}
