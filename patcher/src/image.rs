//! ELF images: a file with what its tables say and the functions that are found in it.

#[cfg(test)]
mod tests;

use std::ops::{Deref, Range};
use std::sync::OnceLock;

use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::function::FunctionTable;
use crate::tables::{Pclntab, Plt, Unwind, landing_pads};

pub use crate::elf::{ImageError, Segment};
pub use crate::tables::{CfaAt, Fde, Frames};

/// An ELF file with code of the supported instruction set. Its tables and its functions are read when they are asked for first.
pub struct Image<'d> {
    file: ElfFile<'d>,
    unwind: OnceLock<Unwind<'d>>,
    functions: OnceLock<FunctionTable<'d>>,
    plt: OnceLock<Plt<'d>>,
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
    pub fn parse(data: &'d [u8]) -> Result<Self, ImageError> {
        Ok(Self {
            file: ElfFile::parse(data)?,
            unwind: OnceLock::new(),
            functions: OnceLock::new(),
            plt: OnceLock::new(),
            pclntab: OnceLock::new(),
        })
    }

    /// Takes the names of functions from the separate debug file `data` as well. Nothing is taken where the image has
    /// all its symbols itself, or its sections of code are not those of the file.
    pub fn with_symbols_of(mut self, data: &'d [u8]) -> Self {
        if self.file.take_symbols_of(data) {
            self.functions = OnceLock::new();
        }
        self
    }

    /// The functions in it.
    pub fn functions(&self) -> &FunctionTable<'d> {
        let collect = || FunctionTable::new(&self.file, self.unwind(), || self.pclntab());
        self.functions.get_or_init(collect)
    }

    /// The frame description that covers `at`.
    pub fn fde(&self, at: Svma) -> Option<Fde> {
        self.unwind().fde(at)
    }

    /// The canonical frame address at the instruction `at`, as far as it hangs on the stack pointer.
    pub fn cfa_from_stack_pointer(&self, at: Svma) -> CfaAt {
        self.unwind().cfa(at)
    }

    /// Do the unwind tables say that nothing is returned to from the code at `at`? There a thread
    /// or the program begins. Nobody calls it.
    pub fn is_outermost(&self, at: Svma) -> bool {
        self.unwind().is_outermost(at)
    }

    /// Where the frame descriptions are once the file is loaded; `None` where they are not, or there are none.
    pub fn frames(&self) -> Option<Frames> {
        self.unwind().frames(&self.file)
    }

    /// The code that no unwind entry covers and in which calls are made, by address.
    pub fn uncovered_calls(&self) -> Vec<Range<Svma>> {
        self.calls_outside(self.unwind().all_ranges())
    }

    /// Where exceptions land in the function `fde` describes: addresses from its LSDA, as far as
    /// it can be read.
    pub fn landing_pads(&self, fde: &Fde) -> Vec<Svma> {
        landing_pads(&self.file, fde).0
    }

    /// As [`Image::landing_pads`], but `None` where the LSDA cannot be read to its end: then an
    /// exception may land anywhere.
    pub fn all_landing_pads(&self, fde: &Fde) -> Option<Vec<Svma>> {
        let (pads, end) = landing_pads(&self.file, fde);
        end.is_some().then_some(pads)
    }

    /// The function of another module that the linkage stub at `at` jumps to.
    pub fn plt_name(&self, at: Svma) -> Option<&'d str> {
        let plt = self.plt.get_or_init(|| Plt::new(&self.file));
        plt.name(&self.file, at)
    }

    /// The symbol of another module that the entry of the global offset table at `entry` leads to.
    pub fn imported_at(&self, entry: Svma) -> Option<&'d str> {
        let plt = self.plt.get_or_init(|| Plt::new(&self.file));
        plt.imported(entry)
    }

    /// What Go's runtime knows of the functions; `None` in what is not written in Go.
    pub(crate) fn pclntab(&self) -> Option<&Pclntab<'d>> {
        let table = self.pclntab.get_or_init(|| Pclntab::of(&self.file));
        table.as_ref()
    }

    pub(crate) fn unwind(&self) -> &Unwind<'d> {
        self.unwind.get_or_init(|| Unwind::new(&self.file))
    }
}
