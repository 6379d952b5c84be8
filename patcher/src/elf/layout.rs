//! What the headers say: segments, and sections with their names.

use std::ops::Range;

use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_LOAD, ProgramHeader};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, SectionHeader};

use super::bytes::{c_str, section_bytes};
use super::error::ImageError;
use crate::addr::{FileOffset, Svma};

/// A part of the file that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is loaded.
    pub range: Range<Svma>,
    /// Where it stands in the file.
    pub offset: FileOffset,
    /// Bytes of it that the file holds; the rest of `range` is zero.
    pub file_size: u64,
    /// Can be read.
    pub read: bool,
    /// Can be written.
    pub write: bool,
    /// Can be executed.
    pub execute: bool,
}

impl Segment {
    /// What a program header describes in a file of `len` bytes.
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

    /// After the last address whose byte is in the file.
    pub fn file_end(&self) -> Svma {
        self.range.start.plus(self.file_size)
    }
}

/// A section header with its name.
#[derive(Clone, Debug)]
pub(crate) struct Section<'d> {
    pub(crate) name: &'d str,
    pub(crate) header: SectionHeader,
}

impl Section<'_> {
    /// Where it is loaded, where it is.
    pub(crate) fn range(&self) -> Range<Svma> {
        Svma(self.header.sh_addr)..Svma(self.header.sh_addr.saturating_add(self.header.sh_size))
    }

    pub(crate) fn holds_code(&self) -> bool {
        self.header.is_executable() && self.header.is_alloc()
    }

    /// Does it hold symbols, all or those for the loader?
    pub(crate) fn holds_symbols(&self) -> bool {
        matches!(self.header.sh_type, SHT_SYMTAB | SHT_DYNSYM)
    }

    /// Does it hold all symbols?
    pub(crate) fn holds_all_symbols(&self) -> bool {
        self.header.sh_type == SHT_SYMTAB
    }

    /// Does it hold relocations?
    pub(crate) fn holds_relocations(&self) -> bool {
        self.header.sh_type == SHT_RELA
    }

    /// True if it holds stubs that the linker made for calls into other modules.
    pub(crate) fn is_plt(&self) -> bool {
        self.name == ".plt" || self.name.starts_with(".plt.") || self.name == ".iplt"
    }
}

/// The segments, by address.
pub(super) fn segments(data: &[u8], programs: &[ProgramHeader]) -> Vec<Segment> {
    let loaded = programs.iter().filter(|p| p.p_type == PT_LOAD);
    let len = data.len() as u64;
    let mut segments: Vec<Segment> = loaded.map(|p| Segment::of(p, len)).collect();
    segments.sort_by_key(|s| s.range.start);
    segments
}

/// Checks that the segments do not have the same bytes of the file again and again: work and memory follow what
/// they hold.
pub(super) fn check(data: &[u8], segments: &[Segment]) -> Result<(), ImageError> {
    /// For each byte of the file. Segments that follow one another share a page at most.
    const MOST_HELD: u64 = 2;
    const ALWAYS_HELD: u64 = 1 << 20;
    let held = segments.iter().map(|s| s.file_size);
    let held = held.fold(0, u64::saturating_add);
    let len = data.len() as u64;
    if held > len.saturating_mul(MOST_HELD).max(ALWAYS_HELD) {
        let what = format!("segments with {held} bytes of a file of {len}");
        return Err(ImageError::Malformed { what });
    }
    Ok(())
}

/// The sections with their names, which stand in section `names`.
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
