//! A name of code.

use crate::addr::{FileOffset, Svma};
use crate::elf::{ElfFile, file_range};

/// A symbol that names code. Its text stays in the file.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    pub(super) start: Svma,
    /// Bytes; 0 where it is not said.
    pub(super) size: u64,
    /// Where its name, without version, stands in its file, and its length.
    pub(super) name: FileOffset,
    pub(super) name_len: u32,
    /// Is that the separate debug file?
    pub(super) is_separate: bool,
    /// The source file it is local to, counted from 1; 0 for none.
    pub(super) file: u32,
    /// Which of several names of one address is the first: global, weak, local.
    pub(super) rank: u8,
    pub(super) is_ifunc: bool,
    /// Only its place says that it names code: an assembler label.
    pub(super) is_label: bool,
}

impl Symbol {
    /// Code of `size` bytes whose name, of so many bytes, stands at `name` in the file.
    pub(super) fn new(start: Svma, size: u64, name: FileOffset, name_len: usize) -> Option<Self> {
        let name_len = u32::try_from(name_len).ok().filter(|&len| len != 0)?;
        Some(Self {
            start,
            size,
            name,
            name_len,
            is_separate: false,
            file: 0,
            rank: 0,
            is_ifunc: false,
            is_label: false,
        })
    }

    /// Its name, from the file it stands in.
    pub(super) fn name<'d>(&self, texts: Texts<'d>) -> &'d str {
        let data = if self.is_separate {
            texts.separate
        } else {
            texts.own
        };
        let bytes = file_range(data, self.name, self.name_len.into()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or("")
    }
}

/// The files in which names stand.
#[derive(Clone, Copy)]
pub(super) struct Texts<'d> {
    own: &'d [u8],
    /// The separate debug file; empty without one.
    separate: &'d [u8],
}

impl<'d> Texts<'d> {
    pub(super) fn of(elf: &ElfFile<'d>) -> Self {
        Self {
            own: elf.data(),
            separate: elf.symbol_file().map_or(&[], |other| other.data),
        }
    }
}
