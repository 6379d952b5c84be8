//! Symbols in a separate file, as distributions ship them.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{ELFCLASS64, ELFDATA2LSB, Header};
use goblin::elf::section_header::SectionHeader;

use super::layout::{self, Section};
use crate::isa::elf::MACHINE;

/// The parts of a separate debug file that are needed for its symbols.
pub(crate) struct SymbolFile<'d> {
    /// The bytes of the file.
    pub(crate) data: &'d [u8],
    /// The sections, in the order of their headers.
    pub(crate) sections: Vec<Section<'d>>,
}

impl<'d> SymbolFile<'d> {
    /// Reads the section headers of the file `data`. `None` if it is no ELF file for the supported
    /// instruction set, or its headers cannot be read.
    pub(super) fn parse(data: &'d [u8]) -> Option<Self> {
        if data.len() < size_of::<Header>() {
            return None;
        }
        let header = Elf::parse_header(data).ok()?;
        let [.., class, order] = *header.e_ident.first_chunk::<6>()?;
        if (class, order, header.e_machine) != (ELFCLASS64, ELFDATA2LSB, MACHINE) {
            return None;
        }
        let context = Ctx::new(Container::Big, Endian::Little);
        let (at, count) = (header.e_shoff as usize, usize::from(header.e_shnum));
        let sections = SectionHeader::parse(data, at, count, context).ok()?;
        let sections = layout::sections(data, sections, header.e_shstrndx);
        Some(Self { data, sections })
    }
}
