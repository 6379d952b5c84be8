//! What a function's arguments and its return value are, and in which registers: from DWARF and the psABI.
//!
//! An argument that a register has at the function's entry as one number can be read, others are refused with a
//! reason: see docs/values.md. Where there is no debug information the integer registers are read as they are.

mod bare;
mod by_reference;
mod described;
mod entries;
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

pub use item::Item;
pub use reason::{Reason, Unreadable};
pub use signature::Signature;
pub use value::{Kind, Place, Value};

use crate::lines::{self, Lines};
use described::Described;
use entries::{Entries, Entry, Side};
use function::Starts;
use language::Language;
use patcher::function::Function;
use std::cell::RefCell;

/// What is known of the values of one image's functions.
pub struct Values<'l, 'd> {
    described: Option<(&'l Lines<'d>, Entries<'d>)>,
    /// Of the unit that was looked at last: the next function is often in it, too.
    starts: RefCell<Option<Starts>>,
    is_go: bool,
}

impl<'l, 'd> Values<'l, 'd> {
    /// Those of the image whose file has the contents `data`, with its debug information where there is any.
    /// Nothing of that is read before a function is asked for.
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

    /// The arguments and the return value of a function. Of the debug information only the function's unit is read and
    /// those that it leads to.
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

    /// What the debug information says; none where it says nothing of the function.
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

    /// The entry of the function in the debug information.
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

    /// Fails where the registers of a function without debug information are not those of the psABI.
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

/// Fails where the name says that the compiler may have changed the function's arguments.
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
