//! Inlined copies of functions with their ranges: DWARF 5 section 3.3.8.2.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Unit, constants};
use patcher::Svma;
use patcher::inside::InlinedCopy;

use super::Lines;
use super::bytes::Reader;
use super::inlined::{LINKS, place_of};
use super::statements::path;

/// An inlined copy of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// The linkage name of the function, or its name in the source.
    pub name: String,
    /// The offset of the copy's entry in `.debug_info`.
    pub entry: usize,
    /// The offset of the unit in `.debug_info`.
    pub unit: usize,
    /// The addresses of its instructions.
    pub ranges: Vec<Range<Svma>>,
    /// The address at which an execution begins (`DW_AT_entry_pc`). `None` if it is not known.
    pub begins_at: Option<Svma>,
    /// The file, line and column of the function's declaration; the column is 0 if it is not known.
    /// `None` without file and line.
    pub declared: Option<(String, u32, u64)>,
    /// The file and line of the call. `None` if they are not known.
    pub called: Option<(String, u32)>,
    /// True for a part of a function that GCC has split off and inlined back. It is no execution.
    /// Its call is at the declaration of the function.
    pub is_part: bool,
    /// The number of inlined copies that contain it.
    pub depth: usize,
    /// The addresses of each inlined copy in it, apart from those in other copies in it.
    pub inner: Vec<Vec<Range<Svma>>>,
}

/// A row of a line number program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The address.
    pub at: Svma,
    /// The number of the file in the unit.
    pub file: u64,
    /// The line; 0 if the code has none.
    pub line: u32,
    /// The column; 0 if it is not known.
    pub column: u64,
    /// True if a statement begins there (`is_stmt`).
    pub is_statement: bool,
}

/// The declaration of a function by one entry, and the entry that it completes.
#[derive(Clone, Default)]
struct Declaration {
    file: Option<String>,
    line: Option<u32>,
    column: Option<u64>,
    link: Option<usize>,
}

impl Lines<'_> {
    /// The inlined copies of functions whose linkage name `is_wanted`, in the order of their
    /// entries: a copy precedes those in it. `name_at` gives the linkage name of the function at an
    /// address. Reads all of the DWARF. Skips unreadable parts.
    pub fn copies(
        &self,
        is_wanted: impl Fn(&[u8]) -> bool + Sync,
        name_at: impl Fn(u64) -> Option<String> + Sync,
    ) -> Vec<Copy> {
        let mut names: HashMap<usize, String> = HashMap::new();
        for (place, name) in self.functions(is_wanted, name_at) {
            // The first of several names, in any order.
            let known = names.entry(place).or_insert_with(|| name.clone());
            if name < *known {
                *known = name;
            }
        }
        if names.is_empty() {
            return Vec::new();
        }
        let mut copies = Vec::new();
        let mut declarations = HashMap::new();
        // As for lookups: the file may change while it is read.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let dwarf = self.debug.dwarf();
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                if let Ok(unit) = dwarf.unit(header) {
                    let _ = add_of_unit(&dwarf, &unit, &names, &mut copies, &mut declarations);
                }
            }
        }));
        let find = |origin: usize| {
            let (mut at, mut found) = (Some(origin), Declaration::default());
            for _ in 0..LINKS {
                let next: &Declaration = declarations.get(&at?)?;
                found.file = found.file.or_else(|| next.file.clone());
                found.line = found.line.or(next.line);
                found.column = found.column.or(next.column);
                if let (Some(file), Some(line)) = (&found.file, found.line) {
                    return Some((file.clone(), line, found.column.unwrap_or(0)));
                }
                at = next.link;
            }
            None
        };
        let complete = |(origin, column, copy): (usize, Option<u64>, Copy)| {
            let declared = find(origin);
            let called = copy.called.clone();
            let called = called.map(|(file, line)| (file, line, column.unwrap_or(0)));
            Copy {
                is_part: declared.is_some() && declared == called,
                declared,
                ..copy
            }
        };
        let mut found: Vec<Copy> = copies.into_iter().map(complete).collect();
        found.sort_by_key(|copy| copy.entry);
        found
    }

    /// The copies `own` in a function of these ranges, for the patcher. `all` are all copies of the
    /// same functions.
    pub fn inlined(&self, own: &[&Copy], all: &[Copy], within: &[Range<Svma>]) -> Vec<InlinedCopy> {
        let mut units = BTreeMap::new();
        let is_within = |at: &Svma| within.iter().any(|range| range.contains(at));
        let of_copy = |copy: &&Copy| {
            let unit = units.entry(copy.unit);
            let (positions, files) = unit.or_insert_with(|| self.positions(copy.unit, within));
            let is_mark = |of: &&Position| {
                let declared = copy.declared.as_ref();
                declared.is_some_and(|(path, line, column)| {
                    let file = files.get(path);
                    of.is_statement
                        && of.line == *line
                        && of.column == *column
                        && file.is_some_and(|numbers| numbers.contains(&of.file))
                })
            };
            let same = |other: &&Copy| other.name == copy.name && other.declared == copy.declared;
            let first = all
                .iter()
                .find(same)
                .map_or(copy.entry, |first| first.entry);
            let others = all
                .iter()
                .filter(|other| other.entry != copy.entry && other.declared == copy.declared);
            let others = others.filter_map(|other| other.begins_at);
            InlinedCopy {
                function: first,
                ranges: copy.ranges.clone(),
                entry: copy.begins_at,
                marks: positions.iter().filter(is_mark).map(|of| of.at).collect(),
                others: others.filter(is_within).collect(),
                positions: numbered(positions, &copy.inner),
            }
        };
        own.iter().map(of_copy).collect()
    }

    /// The rows of a unit's line number program in these ranges, by address. Rows of the same
    /// address are in the order of the program. With the numbers of the files at each path.
    pub fn positions(
        &self,
        unit: usize,
        within: &[Range<Svma>],
    ) -> (Vec<Position>, BTreeMap<String, BTreeSet<u64>>) {
        let (mut found, mut files) = (Vec::new(), BTreeMap::new());
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let dwarf = self.debug.dwarf();
            let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(unit));
            if let Ok(unit) = header.and_then(|header| dwarf.unit(header)) {
                let _ = add_positions(&dwarf, &unit, within, &mut found, &mut files);
            }
        }));
        found.sort_by_key(|position: &Position| position.at);
        (found, files)
    }
}

/// The last position at each address, with a number for it. The code of an inner copy is at one
/// position: that of its call.
fn numbered(positions: &[Position], inner: &[Vec<Range<Svma>>]) -> Vec<(Svma, u32)> {
    let mut numbers = BTreeMap::new();
    let mut own: BTreeMap<Svma, u32> = BTreeMap::new();
    for of in positions {
        let next = (inner.len() + numbers.len()) as u32;
        let place = (of.file, of.line, of.column);
        own.insert(of.at, *numbers.entry(place).or_insert(next));
    }
    let ranges = inner.iter().flatten();
    let borders = ranges.flat_map(|range| [range.start, range.end]);
    let all: BTreeSet<Svma> = borders.chain(own.keys().copied()).collect();
    let number = |at: Svma| {
        let is_in = |ranges: &Vec<Range<Svma>>| ranges.iter().any(|range| range.contains(&at));
        let copy = inner.iter().position(is_in).map(|number| number as u32);
        let row = || own.range(..=at).next_back().map(|(_, number)| *number);
        Some((at, copy.or_else(row)?))
    };
    all.into_iter().filter_map(number).collect()
}

fn add_positions(
    dwarf: &Dwarf<Reader<'_>>,
    unit: &Unit<Reader<'_>>,
    within: &[Range<Svma>],
    found: &mut Vec<Position>,
    files: &mut BTreeMap<String, BTreeSet<u64>>,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
    };
    let header = program.header();
    let first = u64::from(header.version() < 5);
    for number in first..first + header.file_names().len() as u64 {
        if let Some(path) = path(dwarf, unit, header, number) {
            files.entry(path).or_default().insert(number);
        }
    }
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        let at = Svma(row.address());
        if row.end_sequence() || !within.iter().any(|range| range.contains(&at)) {
            continue;
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        found.push(Position {
            at,
            file: row.file_index(),
            line: line.unwrap_or(0),
            column: match row.column() {
                gimli::ColumnType::LeftEdge => 0,
                gimli::ColumnType::Column(column) => column.get(),
            },
            is_statement: row.is_stmt(),
        });
    }
    Ok(())
}

/// Adds the copies of a unit, and the declarations of functions in it. A copy comes with the offset
/// of its origin and the column of its call.
fn add_of_unit(
    dwarf: &Dwarf<Reader<'_>>,
    unit: &Unit<Reader<'_>>,
    names: &HashMap<usize, String>,
    copies: &mut Vec<(usize, Option<u64>, Copy)>,
    declarations: &mut HashMap<usize, Declaration>,
) -> gimli::Result<()> {
    let of_unit = unit.debug_info_offset().map_or(0, |offset| offset.0);
    let mut entries = unit.entries();
    // The depths in the tree of the copies around the entry, with their numbers in `copies`.
    let mut around: Vec<(isize, Option<usize>)> = Vec::new();
    while let Some(entry) = entries.next_dfs()? {
        let depth = entry.depth();
        while around.last().is_some_and(|&(last, _)| last >= depth) {
            around.pop();
        }
        let is_copy = entry.tag() == constants::DW_TAG_inlined_subroutine;
        if !is_copy && entry.tag() != constants::DW_TAG_subprogram {
            continue;
        }
        let Some(at) = entry.offset().to_debug_info_offset(&unit.header) else {
            continue;
        };
        let link = [
            constants::DW_AT_abstract_origin,
            constants::DW_AT_specification,
        ];
        let link = link.into_iter().find_map(|name| entry.attr_value(name));
        let link = link.and_then(|value| place_of(unit, value));
        let position = |file, line| {
            let number = entry.attr_value(file).and_then(|value| match value {
                AttributeValue::FileIndex(number) => Some(number),
                other => other.udata_value(),
            });
            let path = number.and_then(|number| {
                let program = unit.line_program.as_ref()?;
                path(dwarf, unit, program.header(), number)
            });
            let line = entry.attr_value(line).and_then(|value| value.udata_value());
            (path, line.and_then(|line| u32::try_from(line).ok()))
        };
        let column = |name| entry.attr_value(name).and_then(|value| value.udata_value());
        if !is_copy {
            let (file, line) = position(constants::DW_AT_decl_file, constants::DW_AT_decl_line);
            declarations.insert(
                at.0,
                Declaration {
                    file,
                    line,
                    column: column(constants::DW_AT_decl_column),
                    link: link.map(|link| link.0),
                },
            );
            continue;
        }
        let depth_of_copy = around.len();
        let parent = around.last().and_then(|&(_, copy)| copy);
        around.push((depth, None));
        let named = link.and_then(|link| Some((link.0, names.get(&link.0)?)));
        if named.is_none() && parent.is_none() {
            continue;
        }
        let mut ranges = Vec::new();
        let mut of_entry = dwarf.die_ranges(unit, entry)?;
        while let Some(range) = of_entry.next()? {
            // The linker leaves ranges of omitted code at 0.
            if 0 < range.begin && range.begin < range.end {
                ranges.push(Svma(range.begin)..Svma(range.end));
            }
        }
        if ranges.is_empty() {
            continue;
        }
        ranges.sort_by_key(|range| range.start);
        if let Some(parent) = parent {
            copies[parent].2.inner.push(ranges.clone());
        }
        let Some((origin, name)) = named else {
            continue;
        };
        if let Some((_, own)) = around.last_mut() {
            *own = Some(copies.len());
        }
        let begins = entry.attr_value(constants::DW_AT_entry_pc);
        let begins_at = match begins {
            // An offset from the start of the first range (DWARF 5 section 2.18).
            Some(value) => match (
                value.udata_value(),
                dwarf.attr_address(unit, value.clone())?,
            ) {
                (_, Some(at)) => Some(Svma(at)),
                (Some(offset), None) => ranges[0].start.0.checked_add(offset).map(Svma),
                _ => None,
            },
            None => None,
        };
        let (file, line) = position(constants::DW_AT_call_file, constants::DW_AT_call_line);
        copies.push((
            origin,
            column(constants::DW_AT_call_column),
            Copy {
                name: name.clone(),
                entry: at.0,
                unit: of_unit,
                ranges,
                begins_at,
                declared: None,
                called: file.zip(line),
                is_part: false,
                depth: depth_of_copy,
                inner: Vec::new(),
            },
        ));
    }
    Ok(())
}
