//! Source positions of machine code: file, line and inlined functions, from DWARF.
//!
//! Loading reads only section headers. The DWARF itself is read at the first lookup, and then only
//! the units that the lookup needs, found by `.debug_aranges`. Sections stay in the mapped file,
//! except compressed ones, of which only the part needed is decompressed. Addresses that
//! `.debug_aranges` does not cover, and units that refer to others, require reading the root
//! entries of all units once. Units with entries in separate files are read there (`split`).

mod bytes;
mod copies;
mod inlined;
mod mini;
mod of_file;
mod sections;
mod separate;
mod split;
mod statements;
#[cfg(test)]
mod tests;
mod units;

pub use copies::{Copy, Position};
pub use of_file::FileLines;
pub use separate::{Places, is_debug_file_of, symbol_file};

pub use bytes::Reader;

use bytes::Bytes;
use gimli::{DebugInfoOffset, Dwarf};
use ipath_profile::{Frame, InlineFrame};
use patcher::Svma;
use sections::{Debug, Sections};
use split::Split;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use units::Index;

/// A function around an address. The innermost is the source of the code. Each further one is the
/// function that the previous one is inlined into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// The linkage name. `None` if the DWARF gives none.
    pub function: Option<String>,
    /// The source file, absolute if known.
    pub file: Option<String>,
    /// The line, from 1. `None` if the code has no line of its own.
    pub line: Option<u32>,
}

/// The source positions of one ELF file.
pub struct Lines<'d> {
    debug: Debug<'d>,
    /// The DWARF that is shared with other files (dwz).
    supplement: Option<Debug<'d>>,
    index: OnceCell<Index>,
    /// Units that were read individually. `None` for a unit that cannot be read by itself.
    units: RefCell<HashMap<DebugInfoOffset, Option<Context<'d>>>>,
    /// The whole DWARF, once it has been read. `None` if it cannot be read.
    whole: OnceCell<Option<Context<'d>>>,
    split: Split,
}

type Context<'d> = addr2line::Context<Reader<'d>>;

/// The contents of a section of the ELF file `data`, decompressed if necessary. `None` if there is
/// no such section or it has no contents.
pub fn section<'d>(data: &'d [u8], name: &str) -> Option<impl Deref<Target = [u8]> + use<'d>> {
    Sections::parse(Bytes::Borrowed(data))?.get(name)
}

impl<'d> Lines<'d> {
    /// Finds the DWARF of the ELF file `data`, in the file itself or in a separate debug file in
    /// one of `places`. `None` if there is none.
    pub fn load(data: &'d [u8], places: &Places) -> Option<Self> {
        let image = Sections::parse(Bytes::Borrowed(data))?;
        let mut places = places.clone();
        let (debug, supplement) = match image.debug() {
            Some(debug) => (debug, separate::supplement_of(&image, &places)),
            None => {
                let separate = separate::debug_file_of(&image, &places)?;
                places.debug_file = Some(separate.path);
                (separate.sections.debug()?, separate.supplement)
            }
        };
        Some(Self {
            debug,
            supplement,
            index: OnceCell::new(),
            units: RefCell::default(),
            whole: OnceCell::new(),
            split: Split::new(&places),
        })
    }

    /// The functions around the instruction at `at` and their source positions, innermost first.
    /// Empty if the DWARF does not cover it. The last one is the function that was compiled.
    pub fn lookup(&self, at: Svma) -> Vec<SourceFrame> {
        let found = self.in_context(at, |context, _| {
            let found = self.frames(context, at);
            (!found.is_empty()).then_some(found)
        });
        found.unwrap_or_default()
    }

    /// True if separate files of units were looked for and not found. For code in these units the
    /// line is known, but not the function of that line.
    pub fn lacks_units(&self) -> bool {
        self.split.is_missing()
    }

    /// Sets the file, line and inlined functions of `frame` to those at `at`. Leaves it unchanged
    /// if the DWARF does not cover `at`.
    pub fn describe(&self, at: Svma, frame: &mut Frame) {
        let mut found = self.lookup(at);
        let Some(own) = found.pop() else { return };
        frame.file = own.file;
        frame.line = own.line;
        frame.inlined = found
            .into_iter()
            .map(|f| InlineFrame {
                function: f.function,
                file: f.file,
                line: f.line,
            })
            .collect();
    }

    /// The offset in `.debug_info` of the unit with code at `at`. `None` if the DWARF does not
    /// cover it.
    pub fn unit_at(&self, at: Svma) -> Option<DebugInfoOffset> {
        self.in_context(at, |context, alone| {
            let found = context.find_dwarf_and_unit(at.0).skip_all_loads()?;
            alone.or(found.header.debug_info_offset())
        })
    }

    /// The DWARF with its variables and types.
    pub fn dwarf_with_values(&self) -> Dwarf<Reader<'d>> {
        let mut dwarf = self.debug.dwarf_with_values();
        if let Some(supplement) = self.supplement() {
            dwarf.set_sup(supplement);
        }
        dwarf
    }

    /// The DWARF that is shared with other files (dwz).
    pub fn supplement(&self) -> Option<Dwarf<Reader<'d>>> {
        self.supplement.as_ref().map(Debug::dwarf_with_values)
    }

    /// Calls `find` with the unit that has code at `at` and its offset. If that finds nothing,
    /// calls it with the whole DWARF.
    ///
    /// If addr2line panics, the result is `None`. It expects the bytes of a file to stay the same,
    /// but a file may be truncated or overwritten between two reads. A panic leaves no incomplete
    /// unit behind, because a unit is stored only when it is complete.
    fn in_context<T>(
        &self,
        at: Svma,
        find: impl Fn(&Context<'d>, Option<DebugInfoOffset>) -> Option<T>,
    ) -> Option<T> {
        catch_unwind(AssertUnwindSafe(|| self.find(at, find))).ok()?
    }

    fn find<T>(
        &self,
        at: Svma,
        find: impl Fn(&Context<'d>, Option<DebugInfoOffset>) -> Option<T>,
    ) -> Option<T> {
        let in_unit = || {
            // If the whole DWARF has been read, the unit has nothing to add.
            let index = || Index::of(&self.debug);
            let is_apart = self.whole.get().is_none() && self.supplement.is_none();
            let unit = is_apart.then(|| self.index.get_or_init(index).unit_at(at))??;
            let mut units = self.units.borrow_mut();
            let read = || addr2line::Context::from_dwarf(self.debug.dwarf_of_unit(unit)?).ok();
            let context = units.entry(unit).or_insert_with(read);
            find(context.as_ref()?, Some(unit))
        };
        in_unit().or_else(|| find(self.whole()?, None))
    }

    fn whole(&self) -> Option<&Context<'d>> {
        let read = || {
            let mut dwarf = self.debug.dwarf();
            if let Some(supplement) = &self.supplement {
                dwarf.set_sup(supplement.dwarf());
            }
            addr2line::Context::from_dwarf(dwarf).ok()
        };
        self.whole.get_or_init(read).as_ref()
    }

    fn frames(&self, context: &Context<'d>, at: Svma) -> Vec<SourceFrame> {
        let mut found = Vec::new();
        let Ok(mut frames) = self.split.complete(context.find_frames(at.0)) else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let location = frame.location.as_ref();
            found.push(SourceFrame {
                function: name.map(|name| name.into_owned()),
                file: location.and_then(|l| l.file).map(str::to_owned),
                // In DWARF, line 0 marks code without a line of its own.
                line: location.and_then(|l| l.line).filter(|&line| line != 0),
            });
        }
        found
    }
}
