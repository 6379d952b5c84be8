//! The headers of an ELF file, and its bytes by address.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{ET_DYN, Header};
use goblin::elf::note::NT_GNU_BUILD_ID;
use goblin::elf::program_header::{PT_GNU_EH_FRAME, PT_INTERP, PT_NOTE, ProgramHeader};
use goblin::elf::section_header::{SHF_COMPRESSED, SHT_NOBITS, SectionHeader};

use super::bytes::{file_range, section_bytes, segment_bytes};
use super::error::ImageError;
use super::layout::{self, Section, Segment};
use super::notes::notes;
use super::separate::SymbolFile;
use crate::addr::{FileOffset, Svma};
use crate::isa::elf::MACHINE;

/// An ELF file with code of the supported instruction set.
pub struct ElfFile<'d> {
    data: &'d [u8],
    header: Header,
    segments: Vec<Segment>,
    sections: Vec<Section<'d>>,
    /// The program headers, in the order of the file.
    programs: Vec<ProgramHeader>,
    /// The separate debug file; `None` if none has been added.
    symbol_file: Option<SymbolFile<'d>>,
}

impl<'d> ElfFile<'d> {
    /// Reads the headers of the file `data`.
    ///
    /// # Errors
    /// The file is no ELF file for the supported instruction set, its headers are malformed, or its
    /// segments repeat its bytes too often.
    pub fn parse(data: &'d [u8]) -> Result<Self, ImageError> {
        let malformed = |what: String| ImageError::Malformed { what };
        if !data.starts_with(b"\x7fELF") {
            return Err(ImageError::NotElf);
        }
        if data.len() < size_of::<Header>() {
            return Err(malformed(format!(
                "{} bytes, less than its header",
                data.len()
            )));
        }
        let (class, machine) = (data[4], u16::from_le_bytes([data[18], data[19]]));
        if class != 2 || data[5] != 1 || machine != MACHINE {
            return Err(ImageError::OtherMachine { class, machine });
        }
        let header = Elf::parse_header(data).map_err(|e| malformed(format!("header: {e}")))?;
        let ctx = Ctx::new(Container::Big, Endian::Little);
        if header.e_phnum != 0 && usize::from(header.e_phentsize) != ProgramHeader::size(ctx) {
            return Err(malformed(format!(
                "program headers of {} bytes",
                header.e_phentsize
            )));
        }
        let programs =
            ProgramHeader::parse(data, header.e_phoff as usize, header.e_phnum.into(), ctx)
                .map_err(|e| malformed(format!("program headers: {e}")))?;
        let segments = layout::segments(data, &programs);
        layout::check(data, &segments)?;
        // A file without sections, or with a broken table of them, can still be run.
        let sections =
            SectionHeader::parse(data, header.e_shoff as usize, header.e_shnum.into(), ctx)
                .unwrap_or_default();
        Ok(Self {
            data,
            header,
            segments,
            sections: layout::sections(data, sections, header.e_shstrndx),
            programs,
            symbol_file: None,
        })
    }

    /// The bytes of the file.
    pub fn data(&self) -> &'d [u8] {
        self.data
    }

    /// The GNU build id, if there is one.
    pub fn build_id(&self) -> Option<&'d [u8]> {
        let programs = self.programs.iter().filter(|p| p.p_type == PT_NOTE);
        let mut notes = programs.flat_map(|program| notes(self.data, program));
        notes.find_map(|(kind, content)| {
            (kind == NT_GNU_BUILD_ID && !content.is_empty()).then_some(content)
        })
    }

    /// True if the loader chooses the address at which the file is loaded.
    pub fn is_position_independent(&self) -> bool {
        self.header.e_type == ET_DYN
    }

    /// The program's entry point.
    pub fn entry(&self) -> Svma {
        Svma(self.header.e_entry)
    }

    /// The path of the loader that the file requests; `None` if it requests none, or the path
    /// cannot be read.
    pub fn interpreter(&self) -> Option<&'d str> {
        let program = self.program(PT_INTERP)?;
        let bytes = segment_bytes(self.data, program)?;
        std::str::from_utf8(bytes.split(|&b| b == 0).next()?).ok()
    }

    /// The first program header of the type `kind`; `None` if there is none.
    pub(crate) fn program(&self, kind: u32) -> Option<&ProgramHeader> {
        self.programs.iter().find(|p| p.p_type == kind)
    }

    /// The loaded parts of the file, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The loaded segment that contains `at`; `None` if none does. Only the last segment that
    /// starts at or before `at` is considered.
    pub fn segment_at(&self, at: Svma) -> Option<&Segment> {
        let after = self.segments.partition_point(|s| s.range.start <= at);
        self.segments
            .get(after.checked_sub(1)?)
            .filter(|s| s.range.contains(&at))
    }

    /// The link-time address and the bytes of the first section with this name. `None` if there is
    /// none, if it has no bytes in the file, or if they are compressed.
    pub fn section(&self, name: &str) -> Option<(Svma, &'d [u8])> {
        let header = self.section_header(name)?;
        if header.sh_type == SHT_NOBITS || is_compressed(header) {
            return None;
        }
        let bytes = section_bytes(self.data, header)?;
        Some((Svma(header.sh_addr), bytes))
    }

    /// The bytes of the first section with this name, starting with its compression header (ELF
    /// gABI, `Elf64_Chdr`). `None` if there is no such section, or it is not compressed.
    pub fn section_compressed(&self, name: &str) -> Option<&'d [u8]> {
        let header = self.section_header(name).filter(|h| is_compressed(h))?;
        section_bytes(self.data, header)
    }

    fn section_header(&self, name: &str) -> Option<&SectionHeader> {
        self.sections
            .iter()
            .find(|s| s.name == name)
            .map(|s| &s.header)
    }

    /// The sections, in the order of their headers; empty if the headers cannot be read.
    pub(crate) fn sections(&self) -> &[Section<'d>] {
        &self.sections
    }

    /// The separate debug file that provides the symbols, if there is one.
    pub(crate) fn symbol_file(&self) -> Option<&SymbolFile<'d>> {
        self.symbol_file.as_ref()
    }

    /// The `len` bytes that are loaded at `at`. `None` unless all are in the file.
    pub fn bytes(&self, at: Svma, len: u64) -> Option<&'d [u8]> {
        let segment = self.segment_at(at)?;
        let from = at.0 - segment.range.start.0;
        if from.checked_add(len)? > segment.file_size {
            return None;
        }
        let offset = segment.offset.0.checked_add(from)?;
        file_range(self.data, FileOffset(offset), len)
    }

    /// The bytes from `at` to the end of its segment's part in the file. `None` if `at` is in no
    /// such part.
    pub(crate) fn bytes_from(&self, at: Svma) -> Option<&'d [u8]> {
        let segment = self.segment_at(at)?;
        self.bytes(at, segment.file_end().0.checked_sub(at.0)?)
    }

    /// True if `at` is in an executable segment, and its byte is in the file.
    pub fn is_code(&self, at: Svma) -> bool {
        self.segment_at(at)
            .is_some_and(|s| s.execute && at < s.file_end())
    }

    /// The program header that locates the sorted table of frame descriptions (`.eh_frame_hdr`), if
    /// there is one.
    pub(crate) fn frame_index(&self) -> Option<&ProgramHeader> {
        self.program(PT_GNU_EH_FRAME)
    }

    /// True if a program header locates the sorted table of frame descriptions in a loaded segment.
    pub fn has_frame_index(&self) -> bool {
        let index = self.frame_index();
        index.is_some_and(|p| self.segment_at(Svma(p.p_vaddr)).is_some())
    }

    /// The range of the program headers in the file.
    pub fn program_headers(&self) -> Range<FileOffset> {
        let len = u64::from(self.header.e_phentsize) * u64::from(self.header.e_phnum);
        let start = self.header.e_phoff;
        FileOffset(start)..FileOffset(start.saturating_add(len))
    }

    /// Adds the separate debug file `data` as a source of symbols, and returns true.
    ///
    /// Does nothing and returns false if the file has a complete symbol table itself or no code
    /// sections, if `data` cannot be read, or if `data` lacks one of the code sections.
    pub(crate) fn take_symbols_of(&mut self, data: &'d [u8]) -> bool {
        let Some(other) = SymbolFile::parse(data) else {
            return false;
        };
        let has_all = self.sections.iter().any(Section::holds_all_symbols);
        let mut code = self.sections.iter().filter(|s| s.holds_code()).peekable();
        let is_there = |own: &Section<'_>| {
            let mut same = other.sections.iter().filter(|s| s.holds_code());
            same.any(|s| s.name == own.name && s.range() == own.range())
        };
        let is_taken = !has_all && code.peek().is_some() && code.all(is_there);
        if is_taken {
            self.symbol_file = Some(other);
        }
        is_taken
    }
}

fn is_compressed(header: &SectionHeader) -> bool {
    header.sh_flags & u64::from(SHF_COMPRESSED) != 0
}
