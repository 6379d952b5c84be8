//! Symbols that name code.

use crate::addr::{FileOffset, Svma};
use crate::elf::{ElfFile, file_range};

/// A symbol that names code. Its name stays in the file.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    pub(super) start: Svma,
    /// The size of the code in bytes; 0 if the symbol does not state it.
    pub(super) size: u64,
    /// The offset of the symbol's name, without version, in its file.
    pub(super) name: FileOffset,
    /// The length of the name in bytes.
    pub(super) name_len: u32,
    /// True if the name is in the separate debug file.
    pub(super) is_separate: bool,
    /// The source file that the symbol is local to, counted from 1; 0 for none.
    pub(super) file: u32,
    /// The symbol's precedence among the names of one address, the lowest first: 0 for global, 1
    /// for weak, 2 for local symbols.
    pub(super) rank: u8,
    /// True if the code is a resolver (STT_GNU_IFUNC).
    pub(super) is_ifunc: bool,
    /// True for an assembler label. Only its location shows that it names code.
    pub(super) is_label: bool,
}

impl Symbol {
    /// A symbol for code of `size` bytes. Its name has `name_len` bytes and is at `name` in the
    /// file. `None` if the name is empty or too long.
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

    /// The symbol's name; empty if it cannot be read.
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

/// The files that contain the names.
#[derive(Clone, Copy)]
pub(super) struct Texts<'d> {
    /// The image's own file.
    own: &'d [u8],
    /// The separate debug file; empty if there is none.
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
