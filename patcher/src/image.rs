//! ELF images: a file with its tables and the functions found in it.

#[cfg(test)]
mod tests;

use std::ops::{Deref, Range};
use std::sync::OnceLock;

use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::function::FunctionTable;
use crate::tables::{Pclntab, Plt, Unwind, exception_sites, landing_pads};

pub use crate::elf::{ImageError, Segment};
pub use crate::tables::{CfaAt, Fde, Frames};

/// An ELF file with code of the supported instruction set. Its tables and functions are read on
/// first use.
pub struct Image<'d> {
    file: ElfFile<'d>,
    unwind: OnceLock<Unwind<'d>>,
    functions: OnceLock<FunctionTable<'d>>,
    plt: OnceLock<Plt<'d>>,
    /// The function table of Go's runtime; the inner value is `None` if there is none.
    pclntab: OnceLock<Option<Pclntab<'d>>>,
}

impl<'d> Deref for Image<'d> {
    type Target = ElfFile<'d>;

    fn deref(&self) -> &ElfFile<'d> {
        &self.file
    }
}

impl<'d> Image<'d> {
    /// Reads the headers of the file `data`.
    ///
    /// # Errors
    /// As for [`ElfFile::parse`].
    pub fn parse(data: &'d [u8]) -> Result<Self, ImageError> {
        Ok(Self {
            file: ElfFile::parse(data)?,
            unwind: OnceLock::new(),
            functions: OnceLock::new(),
            plt: OnceLock::new(),
            pclntab: OnceLock::new(),
        })
    }

    /// Adds the names of functions from the separate debug file `data`. Does nothing if the image
    /// has a complete symbol table, if `data` cannot be read, or if `data` lacks one of the image's
    /// code sections.
    pub fn with_symbols_of(mut self, data: &'d [u8]) -> Self {
        if self.file.take_symbols_of(data) {
            self.functions = OnceLock::new();
        }
        self
    }

    /// The functions of the image.
    pub fn functions(&self) -> &FunctionTable<'d> {
        let collect = || FunctionTable::new(&self.file, self.unwind(), || self.pclntab());
        self.functions.get_or_init(collect)
    }

    /// The frame description that covers `at`; `None` if none does.
    pub fn fde(&self, at: Svma) -> Option<Fde> {
        self.unwind().fde(at)
    }

    /// The canonical frame address at the instruction `at`, relative to the stack pointer.
    pub fn cfa_from_stack_pointer(&self, at: Svma) -> CfaAt {
        self.unwind().cfa(at)
    }

    /// True if the unwind tables state that the code at `at` has no return address. A thread or the
    /// program begins there; it is never called.
    pub fn is_outermost(&self, at: Svma) -> bool {
        self.unwind().is_outermost(at)
    }

    /// The link-time addresses of the frame descriptions. `None` if they are not loaded, or if
    /// there are none.
    pub fn frames(&self) -> Option<Frames> {
        self.unwind().frames(&self.file)
    }

    /// The code without unwind entries that contains calls, by address.
    pub fn uncovered_calls(&self) -> Vec<Range<Svma>> {
        self.calls_outside(self.unwind().all_ranges())
    }

    /// The landing pads of exceptions in the function that `fde` describes, from its LSDA,
    /// ascending. Incomplete if the LSDA cannot be read to its end.
    pub fn landing_pads(&self, fde: &Fde) -> Vec<Svma> {
        landing_pads(&self.file, fde).0
    }

    /// The call sites of the function whose exceptions arrive at a landing pad, each with the pad.
    pub fn exception_sites(&self, fde: &Fde) -> Vec<(Range<Svma>, Svma)> {
        exception_sites(&self.file, fde).0
    }

    /// Like [`Image::landing_pads`], but `None` if the LSDA cannot be read to its end. In that
    /// case, an exception may land anywhere.
    pub fn all_landing_pads(&self, fde: &Fde) -> Option<Vec<Svma>> {
        let (pads, end) = landing_pads(&self.file, fde);
        end.is_some().then_some(pads)
    }

    /// The name of the function of another module that the linkage stub at `at` jumps to; `None` if
    /// there is no stub or no name.
    pub fn plt_name(&self, at: Svma) -> Option<&'d str> {
        let plt = self.plt.get_or_init(|| Plt::new(&self.file));
        plt.name(&self.file, at)
    }

    /// The name of the symbol of another module whose address the loader stores in the entry of the
    /// global offset table at `entry`; `None` if there is none.
    pub fn imported_at(&self, entry: Svma) -> Option<&'d str> {
        let plt = self.plt.get_or_init(|| Plt::new(&self.file));
        plt.imported(entry)
    }

    /// The function table of Go's runtime; `None` if the image is not written in Go, or if the
    /// table cannot be found or read.
    pub(crate) fn pclntab(&self) -> Option<&Pclntab<'d>> {
        let table = self.pclntab.get_or_init(|| Pclntab::of(&self.file));
        table.as_ref()
    }

    /// The frame descriptions of the image.
    pub(crate) fn unwind(&self) -> &Unwind<'d> {
        self.unwind.get_or_init(|| Unwind::new(&self.file))
    }
}
