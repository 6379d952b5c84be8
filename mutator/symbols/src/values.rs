//! The arguments and the return value of a function, and their registers, by DWARF and the psABI.
//!
//! An argument can be read if a register holds it at the function's entry as a single number.
//! Others are refused with a reason: see docs/reference/values.md. Without debug information, the
//! integer registers are read as they are.

mod bare;
mod by_reference;
mod described;
mod entries;
mod field;
mod function;
mod item;
mod language;
mod location;
mod parts;
pub(crate) mod reason;
mod shape;
mod signature;
mod spelling;
#[cfg(test)]
mod tests;
pub(crate) mod value;

pub use field::Field;
pub use item::Item;
pub use reason::{Reason, Unreadable};
pub use signature::Signature;
pub use value::{Kind, Value, ValueRegister};

use crate::lines::{self, Lines};
use described::Described;
use entries::{Entries, Entry, Side};
use field::NoField;
use function::Starts;
use language::Language;
use patcher::function::Function;
use std::cell::RefCell;

/// The known values of one image's functions.
pub struct Values<'l, 'd> {
    /// The debug information. `None` without any.
    described: Option<(&'l Lines<'d>, Entries<'d>)>,
    /// The functions of the last unit. The next function is often in it, too.
    starts: RefCell<Option<Starts>>,
    /// True if the file is a Go program.
    is_go: bool,
}

impl<'l, 'd> Values<'l, 'd> {
    /// Reads the file with the contents `data`, with its debug information if there is any. The
    /// debug information is read when a function is looked up.
    pub fn new(data: &[u8], lines: Option<&'l Lines<'d>>) -> Self {
        const OF_GO: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
        Self {
            described: lines.map(|lines| (lines, Entries::of(lines))),
            starts: RefCell::default(),
            is_go: OF_GO
                .iter()
                .any(|name| lines::section(data, name).is_some()),
        }
    }

    /// The arguments and the return value of a function. Reads only the function's unit and the
    /// units that it refers to.
    pub fn of(&self, function: &Function) -> Signature {
        let known = match self.described(function) {
            Ok(None) => self.undescribed(function).map(|()| None),
            described => described,
        };
        let name = if function.linkage.is_empty() {
            function.range.start.to_string()
        } else {
            function.name()
        };
        Signature::new(name, known)
    }

    /// The integer in a field of what an argument points to, for example `len` or `head.len`.
    ///
    /// # Errors
    /// There is none, or the debug information does not describe it: the reason, for users.
    pub fn field(&self, function: &Function, number: u8, path: &str) -> Result<Field, String> {
        let names: Vec<&str> = path.split('.').collect();
        let unknown = || "its debug information is missing, which names the fields".to_owned();
        let (lines, entries) = self.described.as_ref().ok_or_else(unknown)?;
        let refused = |reason: Reason| {
            let function = function.name();
            let item = Item::Argument(number);
            let unreadable = Unreadable {
                function,
                item,
                what: None,
                reason,
            };
            unreadable.to_string()
        };
        let entry = self.entry(lines, entries, function).map_err(refused)?;
        let found = field::field(entries, &entry.ok_or_else(unknown)?, number, &names);
        found.map_err(|why| match why {
            NoField::Reason(reason) => refused(reason),
            NoField::Other(why) => why,
        })
    }

    /// The description by debug information. `None` if it does not know the function. Fails if the
    /// debug information cannot be used for it.
    fn described(&self, function: &Function) -> Result<Option<Described>, Reason> {
        let Some((lines, entries)) = &self.described else {
            return Ok(None);
        };
        let Some(entry) = self.entry(lines, entries, function)? else {
            return Ok(None);
        };
        language::of(entries, &entries.source(&entry)?)?.check_types()?;
        check_name(&function.linkage)?;
        if function.linkage.is_empty() {
            return Err(Reason::NoSymbol);
        }
        Described::of(entries, &entry, function.range.start)
    }

    /// The function's entry in the debug information. `None` if there is none. Fails if it cannot
    /// be read, is split, or is in a language without the psABI.
    fn entry(
        &self,
        lines: &Lines<'d>,
        entries: &Entries<'d>,
        function: &Function,
    ) -> Result<Option<Entry<'d>>, Reason> {
        let Some(at) = lines.unit_at(function.range.start) else {
            return Ok(None);
        };
        let unit = entries.unit(Side::Main, at)?;
        if unit.dwo_name()?.is_some() {
            return Err(Reason::Split);
        }
        let mut starts = self.starts.borrow_mut();
        let starts = match &mut *starts {
            Some(starts) if starts.unit == at => starts,
            other => other.insert(Starts::of(entries, at)?),
        };
        let entry = starts.find(entries, function)?;
        if entry.is_none() {
            let root = gimli::UnitOffset(unit.header.size_of_header());
            let root = entries.entry(Side::Main, &unit, root)?;
            language::of(entries, &root)?.check_registers()?;
        }
        Ok(entry)
    }

    /// Fails if a function without debug information may not use the registers of the psABI.
    fn undescribed(&self, function: &Function) -> Result<(), Reason> {
        let linkage = &function.linkage;
        if self.is_go {
            return Err(Reason::Language("part of a Go program".to_owned()));
        }
        if is_rust(linkage) {
            Language::Rust.check_registers()?;
        }
        check_name(linkage)
    }
}

/// Fails if the name says that the compiler may have changed the arguments.
fn check_name(linkage: &str) -> Result<(), Reason> {
    match function::changing_suffix(linkage) {
        Some(suffix) => Err(Reason::Clone(suffix.to_owned())),
        None => Ok(()),
    }
}

/// True for names that only rustc makes.
fn is_rust(linkage: &str) -> bool {
    const HASH: usize = 16;
    let hash = linkage
        .strip_prefix("_ZN")
        .and_then(|rest| rest.rsplit_once("17h"))
        .and_then(|(_, hash)| hash.get(..HASH));
    linkage.starts_with("_R")
        || hash.is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit()))
}
