//! ELF images: segments, sections, and what the unwind tables say.

mod error;
mod layout;
mod lsda;
mod pclntab;
mod plt;
mod property;
mod relocations;
mod separate;
mod uncovered;
mod unwind;

#[cfg(test)]
pub(crate) mod oracle;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::OnceLock;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{EM_X86_64, ET_DYN, Header};
use goblin::elf::program_header::{PT_GNU_EH_FRAME, PT_INTERP, PT_NOTE, ProgramHeader};
use goblin::elf::section_header::{SHF_COMPRESSED, SHT_NOBITS, SectionHeader};

use crate::addr::{FileOffset, Svma};
use crate::function::FunctionTable;

pub use error::ImageError;
pub(crate) use layout::Section;
pub use layout::Segment;
pub(crate) use pclntab::{GoFunction, Pclntab};
use plt::Plt;
pub(crate) use relocations::{RelocatedWord, called_by_the_loader, relocated_words, text_fields};
use separate::SymbolFile;
use unwind::Unwind;
pub use unwind::{CfaAt, Fde, Frames};

/// An x86-64 ELF file.
pub struct Image<'d> {
    data: &'d [u8],
    header: Header,
    segments: Vec<Segment>,
    sections: Vec<Section<'d>>,
    programs: Vec<ProgramHeader>,
    symbol_file: Option<SymbolFile<'d>>,
    unwind: OnceLock<Unwind<'d>>,
    functions: OnceLock<FunctionTable<'d>>,
    plt: OnceLock<Plt<'d>>,
    pclntab: OnceLock<Option<Pclntab<'d>>>,
}

impl<'d> Image<'d> {
    /// Reads the headers of the file `data`.
    pub fn parse(data: &'d [u8]) -> Result<Self, ImageError> {
        let malformed = |what: String| ImageError::Malformed { what };
        if !data.starts_with(b"\x7fELF") {
            return Err(ImageError::NotElf);
        }
        if data.len() < size_of::<Header>() {
            return Err(malformed(format!(
                "{} bytes are less than its header",
                data.len()
            )));
        }
        let (class, machine) = (data[4], u16::from_le_bytes([data[18], data[19]]));
        if class != 2 || data[5] != 1 || machine != EM_X86_64 {
            return Err(ImageError::NotX86_64 { class, machine });
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
            unwind: OnceLock::new(),
            functions: OnceLock::new(),
            plt: OnceLock::new(),
            pclntab: OnceLock::new(),
        })
    }

    /// The file.
    pub fn data(&self) -> &'d [u8] {
        self.data
    }

    /// The GNU build id, if the file has one.
    pub fn build_id(&self) -> Option<&'d [u8]> {
        const NT_GNU_BUILD_ID: u32 = 3;
        let in_note = |program: &ProgramHeader| {
            let mut rest = file_range(self.data, program.p_offset, program.p_filesz)?;
            loop {
                let word = |at: usize| {
                    rest.get(at..at + 4)?
                        .try_into()
                        .ok()
                        .map(u32::from_le_bytes)
                };
                let (name_len, desc_len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
                let name_end = 12usize.checked_add(name_len)?;
                let desc = name_end.checked_next_multiple_of(4)?;
                let desc_end = desc.checked_add(desc_len)?;
                if kind == NT_GNU_BUILD_ID && rest.get(12..name_end)? == b"GNU\0" {
                    return rest.get(desc..desc_end).filter(|id| !id.is_empty());
                }
                rest = rest.get(desc_end.checked_next_multiple_of(4)?..)?;
            }
        };
        self.programs
            .iter()
            .filter(|p| p.p_type == PT_NOTE)
            .find_map(in_note)
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
        let program = self.program(PT_INTERP)?;
        let bytes = file_range(self.data, program.p_offset, program.p_filesz)?;
        std::str::from_utf8(bytes.split(|&b| b == 0).next()?).ok()
    }

    pub(crate) fn program(&self, kind: u32) -> Option<&ProgramHeader> {
        self.programs.iter().find(|p| p.p_type == kind)
    }

    /// The parts that are loaded, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segment that holds `at`.
    pub fn segment_at(&self, at: Svma) -> Option<&Segment> {
        let after = self.segments.partition_point(|s| s.range.start <= at);
        self.segments
            .get(after.checked_sub(1)?)
            .filter(|s| s.range.contains(&at))
    }

    /// Address and bytes of a section; `None` where it has no bytes in the file or they are
    /// compressed.
    pub fn section(&self, name: &str) -> Option<(Svma, &'d [u8])> {
        let header = self.section_header(name)?;
        if header.sh_type == SHT_NOBITS || is_compressed(header) {
            return None;
        }
        let bytes = file_range(self.data, header.sh_offset, header.sh_size)?;
        Some((Svma(header.sh_addr), bytes))
    }

    /// The bytes of a compressed section, its compression header (ELF gABI, `Elf64_Chdr`) first.
    pub fn section_compressed(&self, name: &str) -> Option<&'d [u8]> {
        let header = self.section_header(name).filter(|h| is_compressed(h))?;
        file_range(self.data, header.sh_offset, header.sh_size)
    }

    fn section_header(&self, name: &str) -> Option<&SectionHeader> {
        self.sections
            .iter()
            .find(|s| s.name == name)
            .map(|s| &s.header)
    }

    pub(crate) fn sections(&self) -> &[Section<'d>] {
        &self.sections
    }

    /// The separate debug file with its symbols.
    pub(crate) fn symbol_file(&self) -> Option<&SymbolFile<'d>> {
        self.symbol_file.as_ref()
    }

    /// `len` bytes that are loaded at `at`; `None` where they are not all in the file.
    pub fn bytes(&self, at: Svma, len: u64) -> Option<&'d [u8]> {
        let segment = self.segment_at(at)?;
        let from = at.0 - segment.range.start.0;
        if from.checked_add(len)? > segment.file_size {
            return None;
        }
        file_range(self.data, segment.offset.0.checked_add(from)?, len)
    }

    /// The bytes from `at` to the end of its segment's part in the file.
    pub(crate) fn bytes_from(&self, at: Svma) -> Option<&'d [u8]> {
        let segment = self.segment_at(at)?;
        self.bytes(at, segment.file_end().0.checked_sub(at.0)?)
    }

    pub(crate) fn is_code(&self, at: Svma) -> bool {
        self.segment_at(at)
            .is_some_and(|s| s.execute && at < s.file_end())
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

    /// Do the unwind tables say that nothing is returned to from the code at `at`? A thread or the
    /// program begins there; nobody calls it.
    pub fn is_outermost(&self, at: Svma) -> bool {
        self.unwind().is_outermost(at)
    }

    /// Where the frame descriptions are once the file is loaded; `None` where they are not, or there are none.
    pub fn frames(&self) -> Option<Frames> {
        self.unwind().frames(self)
    }

    /// Does a program header say where the sorted table of the frame descriptions is, in what is loaded?
    pub fn has_frame_index(&self) -> bool {
        let index = self.program(PT_GNU_EH_FRAME);
        index.is_some_and(|p| self.segment_at(Svma(p.p_vaddr)).is_some())
    }

    /// Where the program headers stand in the file.
    pub fn program_headers(&self) -> Range<FileOffset> {
        let len = u64::from(self.header.e_phentsize) * u64::from(self.header.e_phnum);
        let start = self.header.e_phoff;
        FileOffset(start)..FileOffset(start.saturating_add(len))
    }

    /// Where exceptions land in the function `fde` describes: addresses from its LSDA, as far as
    /// it can be read.
    pub fn landing_pads(&self, fde: &Fde) -> Vec<Svma> {
        lsda::landing_pads(self, fde).0
    }

    /// As [`Image::landing_pads`], but `None` where the LSDA cannot be read to its end: then an
    /// exception may land anywhere.
    pub fn all_landing_pads(&self, fde: &Fde) -> Option<Vec<Svma>> {
        let (pads, end) = lsda::landing_pads(self, fde);
        end.is_some().then_some(pads)
    }

    /// The function of another module that the linkage stub at `at` jumps to.
    pub fn plt_name(&self, at: Svma) -> Option<&'d str> {
        self.plt.get_or_init(|| Plt::new(self)).name(self, at)
    }

    /// What Go's runtime knows of the functions; `None` in what is not written in Go.
    pub(crate) fn pclntab(&self) -> Option<&Pclntab<'d>> {
        let table = self.pclntab.get_or_init(|| Pclntab::of(self));
        table.as_ref()
    }

    pub(crate) fn unwind(&self) -> &Unwind<'d> {
        self.unwind.get_or_init(|| Unwind::new(self))
    }
}

fn is_compressed(header: &SectionHeader) -> bool {
    header.sh_flags & u64::from(SHF_COMPRESSED) != 0
}

/// `len` bytes of the file from `offset`.
pub(crate) fn file_range(data: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    data.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

/// The 64-bit number at the start of `bytes`; 0 where they are too few.
pub(crate) fn le64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

/// The text up to the first zero byte.
pub(crate) fn c_str(bytes: &[u8]) -> Option<&str> {
    /// Longer names are not read: many symbols that name one huge text take no time to speak of.
    const LONGEST: usize = 1 << 16;
    let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
    let len = bytes.iter().position(|&b| b == 0)?;
    std::str::from_utf8(bytes.get(..len)?).ok()
}
