//! Segments, and sections with their names, from the headers.

use std::ops::Range;

use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_LOAD, ProgramHeader};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, SectionHeader};

use super::bytes::{c_str, section_bytes};
use super::error::ImageError;
use crate::addr::{FileOffset, Svma};

/// A part of the file that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The link-time addresses at which the segment is loaded.
    pub range: Range<Svma>,
    /// Offset of the segment in the file.
    pub offset: FileOffset,
    /// The number of bytes that are in the file; the rest of `range` is zero.
    pub file_size: u64,
    /// True if the segment is readable.
    pub read: bool,
    /// True if the segment is writable.
    pub write: bool,
    /// True if the segment is executable.
    pub execute: bool,
}

impl Segment {
    /// The segment that a program header describes, in a file of `len` bytes.
    pub(super) fn of(program: &ProgramHeader, len: u64) -> Self {
        let held = len.saturating_sub(program.p_offset);
        let start = Svma(program.p_vaddr);
        let end = Svma(program.p_vaddr.saturating_add(program.p_memsz));
        Self {
            file_size: program.p_filesz.min(end.0 - start.0).min(held),
            range: start..end,
            offset: FileOffset(program.p_offset),
            read: program.p_flags & PF_R != 0,
            write: program.p_flags & PF_W != 0,
            execute: program.p_flags & PF_X != 0,
        }
    }

    /// The end of the addresses whose bytes are in the file.
    pub fn file_end(&self) -> Svma {
        self.range.start.plus(self.file_size)
    }
}

/// A section header with its name.
#[derive(Clone, Debug)]
pub(crate) struct Section<'d> {
    /// The section's name; empty if it cannot be read.
    pub(crate) name: &'d str,
    pub(crate) header: SectionHeader,
}

impl Section<'_> {
    /// The link-time addresses at which the section is loaded; meaningless if it is not loaded.
    pub(crate) fn range(&self) -> Range<Svma> {
        Svma(self.header.sh_addr)..Svma(self.header.sh_addr.saturating_add(self.header.sh_size))
    }

    /// True if the section contains code that is loaded.
    pub(crate) fn holds_code(&self) -> bool {
        self.header.is_executable() && self.header.is_alloc()
    }

    /// True if the section contains symbols: all, or those for the loader.
    pub(crate) fn holds_symbols(&self) -> bool {
        matches!(self.header.sh_type, SHT_SYMTAB | SHT_DYNSYM)
    }

    /// True if the section contains all symbols.
    pub(crate) fn holds_all_symbols(&self) -> bool {
        self.header.sh_type == SHT_SYMTAB
    }

    /// True if the section contains relocations with addends (SHT_RELA).
    pub(crate) fn holds_relocations(&self) -> bool {
        self.header.sh_type == SHT_RELA
    }

    /// True if the section contains stubs that the linker made for calls into other modules.
    pub(crate) fn is_plt(&self) -> bool {
        self.name == ".plt" || self.name.starts_with(".plt.") || self.name == ".iplt"
    }
}

/// The loaded segments, by address.
pub(super) fn segments(data: &[u8], programs: &[ProgramHeader]) -> Vec<Segment> {
    let loaded = programs.iter().filter(|p| p.p_type == PT_LOAD);
    let len = data.len() as u64;
    let mut segments: Vec<Segment> = loaded.map(|p| Segment::of(p, len)).collect();
    segments.sort_by_key(|s| s.range.start);
    segments
}

/// Checks that the segments do not repeat the same bytes of the file many times, because work and
/// memory are proportional to their total size. Otherwise, fails with [`ImageError::Malformed`].
pub(super) fn check(data: &[u8], segments: &[Segment]) -> Result<(), ImageError> {
    /// The maximum number of segment bytes for each byte of the file. Adjacent segments share at
    /// most one page.
    const MOST_HELD: u64 = 2;
    /// The number of segment bytes that is always allowed.
    const ALWAYS_HELD: u64 = 1 << 20;
    let held = segments.iter().map(|s| s.file_size);
    let held = held.fold(0, u64::saturating_add);
    let len = data.len() as u64;
    if held > len.saturating_mul(MOST_HELD).max(ALWAYS_HELD) {
        let what = format!("segments with {held} bytes in a file of {len} bytes");
        return Err(ImageError::Malformed { what });
    }
    Ok(())
}

/// The sections with their names, in the order of `headers`. `names` is the index of the section
/// that stores the names (`e_shstrndx`).
pub(super) fn sections(data: &[u8], headers: Vec<SectionHeader>, names: u16) -> Vec<Section<'_>> {
    const SHN_XINDEX: u16 = 0xffff;
    let index = match headers.first() {
        Some(first) if names == SHN_XINDEX => first.sh_link as usize,
        _ => usize::from(names),
    };
    let names = headers
        .get(index)
        .and_then(|header| section_bytes(data, header));
    let names = names.unwrap_or_default();
    let name = |header: &SectionHeader| names.get(header.sh_name..).and_then(c_str).unwrap_or("");
    headers
        .into_iter()
        .map(|header| Section {
            name: name(&header),
            header,
        })
        .collect()
}
