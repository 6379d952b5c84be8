//! ELF images: segments, sections, and what the unwind tables say.

mod lsda;
mod unwind;

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{EM_X86_64, ET_DYN, Header};
use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE, ProgramHeader};
use goblin::elf::section_header::{SHF_COMPRESSED, SHT_NOBITS, SectionHeader};

use crate::addr::{FileOffset, Svma};
use crate::function::FunctionTable;

pub use unwind::{CfaAt, Fde};
use unwind::Unwind;

/// Why bytes are no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// No ELF file.
    NotElf,
    /// An ELF file of another class or machine.
    NotX86_64 {
        /// Class: 1 for 32 bit, 2 for 64 bit.
        class: u8,
        /// `e_machine`.
        machine: u16,
    },
    /// An ELF file whose headers contradict its size or each other.
    Malformed {
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => write!(f, "not an ELF file"),
            Self::NotX86_64 { class, machine } => {
                let bits = if *class == 2 { 64 } else { 32 };
                write!(f, "not an x86-64 ELF file (ELF{bits}, machine {machine})")
            }
            Self::Malformed { what } => write!(f, "malformed ELF file: {what}"),
        }
    }
}

impl std::error::Error for ImageError {}

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

/// A section header with its name.
#[derive(Clone, Debug)]
pub(crate) struct Section<'d> {
    pub(crate) name: &'d str,
    pub(crate) header: SectionHeader,
}

/// An x86-64 ELF file.
pub struct Image<'d> {
    data: &'d [u8],
    header: Header,
    segments: Vec<Segment>,
    sections: Vec<Section<'d>>,
    programs: Vec<ProgramHeader>,
    unwind: OnceLock<Unwind<'d>>,
    functions: OnceLock<FunctionTable<'d>>,
}

impl<'d> Image<'d> {
    /// Reads the headers of the file `data`.
    pub fn parse(data: &'d [u8]) -> Result<Self, ImageError> {
        if !data.starts_with(b"\x7fELF") || data.len() < 64 {
            return Err(ImageError::NotElf);
        }
        let malformed = |what: &str, error: goblin::error::Error| ImageError::Malformed {
            what: format!("{what}: {error}"),
        };
        let (class, machine) = (data[4], u16::from_le_bytes([data[18], data[19]]));
        if class != 2 || data[5] != 1 || machine != EM_X86_64 {
            return Err(ImageError::NotX86_64 { class, machine });
        }
        let header = Elf::parse_header(data).map_err(|e| malformed("header", e))?;
        let ctx = Ctx::new(Container::Big, Endian::Little);
        let programs = ProgramHeader::parse(data, header.e_phoff as usize, header.e_phnum.into(), ctx)
            .map_err(|e| malformed("program headers", e))?;
        let segments = programs.iter().filter(|p| p.p_type == PT_LOAD).map(segment).collect();
        // A file without sections, or with a broken table of them, can still be run.
        let sections = SectionHeader::parse(data, header.e_shoff as usize, header.e_shnum.into(), ctx)
            .unwrap_or_default();
        let sections = named(data, sections, header.e_shstrndx.into());
        Ok(Self {
            data,
            header,
            segments,
            sections,
            programs,
            unwind: OnceLock::new(),
            functions: OnceLock::new(),
        })
    }

    /// The file.
    pub fn data(&self) -> &'d [u8] {
        self.data
    }

    /// The GNU build id, if the file has one.
    pub fn build_id(&self) -> Option<&'d [u8]> {
        const NT_GNU_BUILD_ID: u32 = 3;
        self.programs.iter().filter(|p| p.p_type == PT_NOTE).find_map(|program| {
            let mut rest = file_range(self.data, program.p_offset, program.p_filesz)?;
            loop {
                let word = |at: usize| {
                    rest.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
                };
                let (name_len, desc_len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
                let name_end = 12usize.checked_add(name_len)?;
                let desc = name_end.checked_next_multiple_of(4)?;
                let desc_end = desc.checked_add(desc_len)?;
                if kind == NT_GNU_BUILD_ID && rest.get(12..name_end)? == b"GNU\0" {
                    return rest.get(desc..desc_end);
                }
                rest = rest.get(desc_end.checked_next_multiple_of(4)?..)?;
            }
        })
    }

    /// Whether the loader chooses its address.
    pub fn is_position_independent(&self) -> bool {
        self.header.e_type == ET_DYN
    }

    /// Where a program starts.
    pub fn entry(&self) -> Svma {
        Svma(self.header.e_entry)
    }

    /// The loader the file asks for.
    pub fn interpreter(&self) -> Option<&'d str> {
        let program = self.programs.iter().find(|p| p.p_type == PT_INTERP)?;
        let bytes = file_range(self.data, program.p_offset, program.p_filesz)?;
        std::str::from_utf8(bytes.split(|&b| b == 0).next()?).ok()
    }

    /// The parts that are loaded.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Address and bytes of a section; `None` where it has no bytes in the file or they are
    /// compressed.
    pub fn section(&self, name: &str) -> Option<(Svma, &'d [u8])> {
        let header = &self.sections.iter().find(|s| s.name == name)?.header;
        if header.sh_type == SHT_NOBITS || header.sh_flags & u64::from(SHF_COMPRESSED) != 0 {
            return None;
        }
        let bytes = file_range(self.data, header.sh_offset, header.sh_size)?;
        Some((Svma(header.sh_addr), bytes))
    }

    pub(crate) fn sections(&self) -> &[Section<'d>] {
        &self.sections
    }

    /// `len` bytes that are loaded at `at`; `None` where they are not all in the file.
    pub fn bytes(&self, at: Svma, len: u64) -> Option<&'d [u8]> {
        let segment = self.segments.iter().find(|s| s.range.contains(&at))?;
        let from = at.0 - segment.range.start.0;
        if from.checked_add(len)? > segment.file_size {
            return None;
        }
        file_range(self.data, segment.offset.0.checked_add(from)?, len)
    }

    pub(crate) fn is_code(&self, at: Svma) -> bool {
        self.segments.iter().any(|s| s.execute && s.range.contains(&at))
    }

    /// The functions in it, collected at first use.
    pub fn functions(&self) -> &FunctionTable<'d> {
        self.functions.get_or_init(|| FunctionTable::new(self))
    }

    /// The frame description that covers `at`.
    pub fn fde(&self, at: Svma) -> Option<Fde> {
        self.unwind().fde(at)
    }

    /// The canonical frame address at the instruction `at`, as far as it hangs on rsp.
    pub fn cfa_offset_from_rsp(&self, at: Svma) -> CfaAt {
        self.unwind().cfa(at)
    }

    /// Where exceptions land in the function `fde` describes: addresses from its LSDA.
    pub fn landing_pads(&self, fde: &Fde) -> Vec<Svma> {
        fde.lsda.and_then(|lsda| lsda::landing_pads(self, lsda, fde.range.start)).unwrap_or_default()
    }

    pub(crate) fn unwind(&self) -> &Unwind<'d> {
        self.unwind.get_or_init(|| Unwind::new(self))
    }
}

fn segment(program: &ProgramHeader) -> Segment {
    let start = Svma(program.p_vaddr);
    Segment {
        range: start..Svma(program.p_vaddr.saturating_add(program.p_memsz)),
        offset: FileOffset(program.p_offset),
        file_size: program.p_filesz.min(program.p_memsz),
        read: program.p_flags & PF_R != 0,
        write: program.p_flags & PF_W != 0,
        execute: program.p_flags & PF_X != 0,
    }
}

fn named(data: &[u8], headers: Vec<SectionHeader>, names: usize) -> Vec<Section<'_>> {
    let Some(names) = headers.get(names) else { return Vec::new() };
    let names = file_range(data, names.sh_offset, names.sh_size).unwrap_or_default();
    let name = |header: &SectionHeader| {
        names.get(header.sh_name..).and_then(c_str).unwrap_or("")
    };
    headers.into_iter().map(|header| Section { name: name(&header), header }).collect()
}

/// `len` bytes of the file from `offset`.
pub(crate) fn file_range(data: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    data.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

/// The text up to the first zero byte.
pub(crate) fn c_str(bytes: &[u8]) -> Option<&str> {
    let len = bytes.iter().position(|&b| b == 0)?;
    std::str::from_utf8(bytes.get(..len)?).ok()
}
