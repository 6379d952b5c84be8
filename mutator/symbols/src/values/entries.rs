//! Entries of DWARF in all places: the file's own units, type units, and the supplement made by
//! dwz.

use super::reason::Reason;
use crate::lines::{Lines, Reader};
use gimli::constants::{self, DwAt, DwTag};
use gimli::{
    AttributeValue, DebugInfoOffset, DebugTypeSignature, DebuggingInformationEntry, Dwarf, Unit,
    UnitHeader, UnitOffset, UnitType,
};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The most links from an entry to the one that it completes: abstract origin, then specification.
const LINKS: usize = 8;
/// The most children of an entry to look at.
const CHILDREN: usize = 1 << 12;
/// The most units to keep open.
const OPEN: usize = 64;

/// The file that an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The file with the image's debug information.
    Main,
    /// Its supplement.
    Supplement,
}

/// All reachable entries.
pub(super) struct Entries<'d> {
    main: File<'d>,
    supplement: Option<File<'d>>,
}

struct File<'d> {
    dwarf: Dwarf<Reader<'d>>,
    /// The offsets of units in `.debug_info`, ascending.
    starts: OnceCell<Vec<usize>>,
    /// The headers of the type units, by signature.
    types: OnceCell<HashMap<u64, UnitHeader<Reader<'d>>>>,
    /// The units that are open, at most [`OPEN`].
    open: RefCell<HashMap<UnitPlace, Rc<Unit<Reader<'d>>>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum UnitPlace {
    Info(usize),
    Types(u64),
}

/// An entry and its unit.
#[derive(Clone)]
pub(super) struct Entry<'d> {
    pub(super) side: Side,
    pub(super) unit: Rc<Unit<Reader<'d>>>,
    pub(super) die: DebuggingInformationEntry<Reader<'d>>,
}

impl Entry<'_> {
    pub(super) fn tag(&self) -> DwTag {
        self.die.tag()
    }

    /// The value of an attribute that is a non-negative number. `None` if there is no such
    /// attribute.
    pub(super) fn number(&self, name: DwAt) -> Option<u64> {
        self.die.attr_value(name)?.udata_value()
    }

    /// True if a flag is set. False if it is absent.
    pub(super) fn flag(&self, name: DwAt) -> bool {
        matches!(self.die.attr_value(name), Some(AttributeValue::Flag(true)))
    }

    /// The encoding of a base type. `None` if there is none.
    pub(super) fn encoding(&self) -> Option<constants::DwAte> {
        match self.die.attr_value(constants::DW_AT_encoding)? {
            AttributeValue::Encoding(encoding) => Some(encoding),
            _ => None,
        }
    }

    /// True if both are the same entry in the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.side == other.side
            && self.unit.header.offset() == other.unit.header.offset()
            && self.unit.header.section() == other.unit.header.section()
            && self.die.offset() == other.die.offset()
    }
}

impl<'d> Entries<'d> {
    pub(super) fn of(lines: &Lines<'d>) -> Self {
        let file = |dwarf| File {
            dwarf,
            starts: OnceCell::new(),
            types: OnceCell::new(),
            open: RefCell::default(),
        };
        Self {
            main: file(lines.dwarf_with_values()),
            supplement: lines.supplement().map(file),
        }
    }

    /// The DWARF of a file. Fails if the supplement is missing.
    pub(super) fn dwarf(&self, side: Side) -> Result<&Dwarf<Reader<'d>>, Reason> {
        Ok(&self.file(side)?.dwarf)
    }

    fn file(&self, side: Side) -> Result<&File<'d>, Reason> {
        match side {
            Side::Main => Ok(&self.main),
            Side::Supplement => self.supplement.as_ref().ok_or(Reason::Supplement),
        }
    }

    /// The unit at an offset in `.debug_info`.
    pub(super) fn unit(
        &self,
        side: Side,
        at: DebugInfoOffset,
    ) -> Result<Rc<Unit<Reader<'d>>>, Reason> {
        let file = self.file(side)?;
        file.open(UnitPlace::Info(at.0), || Ok(file.dwarf.unit_header(at)?))
    }

    /// The entry at an offset in a unit. Fails if it cannot be read.
    pub(super) fn entry(
        &self,
        side: Side,
        unit: &Rc<Unit<Reader<'d>>>,
        at: UnitOffset,
    ) -> Result<Entry<'d>, Reason> {
        Ok(Entry {
            side,
            unit: Rc::clone(unit),
            die: unit.entry(at)?,
        })
    }

    /// The root entry of an entry's unit.
    pub(super) fn root(&self, entry: &Entry<'d>) -> Result<Entry<'d>, Reason> {
        let at = UnitOffset(entry.unit.header.size_of_header());
        self.entry(entry.side, &entry.unit, at)
    }

    /// The entry that an attribute refers to. `None` without the attribute. Fails if it leads to no
    /// entry, or to a missing file.
    pub(super) fn follow(
        &self,
        entry: &Entry<'d>,
        name: DwAt,
    ) -> Result<Option<Entry<'d>>, Reason> {
        let Some(to) = entry.die.attr_value(name) else {
            return Ok(None);
        };
        match to {
            AttributeValue::UnitRef(at) => self.entry(entry.side, &entry.unit, at),
            AttributeValue::DebugInfoRef(at) => self.at(entry.side, at),
            AttributeValue::DebugInfoRefSup(at) => self.at(Side::Supplement, at),
            AttributeValue::DebugTypesRef(signature) => self.of_type_unit(entry.side, signature),
            _ => Err(Reason::Broken(format!("{name} leads to no entry"))),
        }
        .map(Some)
    }

    fn at(&self, side: Side, at: DebugInfoOffset) -> Result<Entry<'d>, Reason> {
        let file = self.file(side)?;
        let starts = file.starts();
        let after = starts.partition_point(|&start| start <= at.0);
        let start = after.checked_sub(1).and_then(|index| starts.get(index));
        let outside = || Reason::Broken(format!("no unit is at {:#x}", at.0));
        let unit = self.unit(side, DebugInfoOffset(*start.ok_or_else(outside)?))?;
        let at = at.to_unit_offset(&unit.header).ok_or_else(outside)?;
        self.entry(side, &unit, at)
    }

    fn of_type_unit(&self, side: Side, signature: DebugTypeSignature) -> Result<Entry<'d>, Reason> {
        let file = self.file(side)?;
        let header = file.types().get(&signature.0);
        let header = header.ok_or(Reason::NotDescribed)?;
        let UnitType::Type { type_offset, .. } = header.type_() else {
            return Err(Reason::NotDescribed);
        };
        let unit = file.open(UnitPlace::Types(signature.0), || Ok(header.clone()))?;
        self.entry(side, &unit, type_offset)
    }

    /// The first entry that has an attribute: the entry itself, or one that it completes. `None` if
    /// there is none.
    pub(super) fn bearer(
        &self,
        entry: &Entry<'d>,
        name: DwAt,
    ) -> Result<Option<Entry<'d>>, Reason> {
        let mut entry = entry.clone();
        for _ in 0..LINKS {
            if entry.die.attr(name).is_some() {
                return Ok(Some(entry));
            }
            match self.completed(&entry)? {
                Some(next) => entry = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The entry that this one completes, by abstract origin or else by specification. `None` if it
    /// completes none.
    pub(super) fn completed(&self, entry: &Entry<'d>) -> Result<Option<Entry<'d>>, Reason> {
        match self.follow(entry, constants::DW_AT_abstract_origin)? {
            Some(origin) => Ok(Some(origin)),
            None => self.follow(entry, constants::DW_AT_specification),
        }
    }

    /// The last entry in the chain of completed ones, which stands for the source.
    pub(super) fn source(&self, entry: &Entry<'d>) -> Result<Entry<'d>, Reason> {
        let mut entry = entry.clone();
        for _ in 0..LINKS {
            match self.completed(&entry)? {
                Some(next) => entry = next,
                None => break,
            }
        }
        Ok(entry)
    }

    /// The type of an entry, or of one that it completes. `None` for void.
    pub(super) fn type_of(&self, entry: &Entry<'d>) -> Result<Option<Entry<'d>>, Reason> {
        match self.bearer(entry, constants::DW_AT_type)? {
            Some(bearer) => self.follow(&bearer, constants::DW_AT_type),
            None => Ok(None),
        }
    }

    /// The text of an entry's own attribute. `None` if there is none, or if it cannot be read.
    pub(super) fn text(&self, entry: &Entry<'d>, name: DwAt) -> Option<String> {
        let value = entry.die.attr_value(name)?;
        let dwarf = self.dwarf(entry.side).ok()?;
        let text = dwarf.attr_string(&entry.unit, value).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// The name of an entry, or of one that it completes. `None` if there is none.
    pub(super) fn name(&self, entry: &Entry<'d>) -> Option<String> {
        let bearer = self.bearer(entry, constants::DW_AT_name).ok()??;
        self.text(&bearer, constants::DW_AT_name)
    }

    /// The children of an entry. Fails if they cannot be read or are more than [`CHILDREN`].
    pub(super) fn children(&self, entry: &Entry<'d>) -> Result<Vec<Entry<'d>>, Reason> {
        let mut children = Vec::new();
        let mut tree = entry.unit.entries_tree(Some(entry.die.offset()))?;
        let mut nodes = tree.root()?.children();
        while let Some(node) = nodes.next()? {
            if children.len() == CHILDREN {
                return Err(Reason::NotDescribed);
            }
            children.push(Entry {
                side: entry.side,
                unit: Rc::clone(&entry.unit),
                die: node.entry().clone(),
            });
        }
        Ok(children)
    }
}

impl<'d> File<'d> {
    fn open(
        &self,
        place: UnitPlace,
        header: impl FnOnce() -> Result<UnitHeader<Reader<'d>>, Reason>,
    ) -> Result<Rc<Unit<Reader<'d>>>, Reason> {
        if let Some(unit) = self.open.borrow().get(&place) {
            return Ok(Rc::clone(unit));
        }
        let unit = Rc::new(self.dwarf.unit(header()?)?);
        let mut open = self.open.borrow_mut();
        if open.len() >= OPEN {
            open.clear();
        }
        open.insert(place, Rc::clone(&unit));
        Ok(unit)
    }

    fn starts(&self) -> &[usize] {
        self.starts.get_or_init(|| {
            let mut starts = Vec::new();
            let mut units = self.dwarf.units();
            while let Ok(Some(header)) = units.next() {
                starts.extend(header.debug_info_offset().map(|at| at.0));
            }
            starts
        })
    }

    /// The type units by their signatures: in `.debug_info` since DWARF 5, in `.debug_types`
    /// before.
    fn types(&self) -> &HashMap<u64, UnitHeader<Reader<'d>>> {
        self.types.get_or_init(|| {
            let mut types = HashMap::new();
            let mut add = |header: UnitHeader<Reader<'d>>| {
                if let UnitType::Type { type_signature, .. } = header.type_() {
                    types.insert(type_signature.0, header);
                }
            };
            let mut units = self.dwarf.units();
            while let Ok(Some(header)) = units.next() {
                add(header);
            }
            let mut units = self.dwarf.type_units();
            while let Ok(Some(header)) = units.next() {
                add(header);
            }
            types
        })
    }
}

/// The calling convention of a function or of a class, by its entry. `None` if the entry gives
/// none.
pub(super) fn convention(entry: &Entry<'_>) -> Option<constants::DwCc> {
    match entry.die.attr_value(constants::DW_AT_calling_convention)? {
        AttributeValue::CallingConvention(convention) => Some(convention),
        _ => None,
    }
}
