//! Symbols in a file of their own, as distributions ship them.

use std::sync::OnceLock;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{ELFCLASS64, ELFDATA2LSB, EM_X86_64, Header};
use goblin::elf::section_header::{SHT_SYMTAB, SectionHeader};

use super::Image;
use super::layout::{self, Section};

/// A separate debug file, as far as its symbols need it.
pub(crate) struct SymbolFile<'d> {
    pub(crate) data: &'d [u8],
    pub(crate) sections: Vec<Section<'d>>,
}

impl<'d> SymbolFile<'d> {
    fn parse(data: &'d [u8]) -> Option<Self> {
        if data.len() < size_of::<Header>() {
            return None;
        }
        let header = Elf::parse_header(data).ok()?;
        let [.., class, order] = *header.e_ident.first_chunk::<6>()?;
        if (class, order, header.e_machine) != (ELFCLASS64, ELFDATA2LSB, EM_X86_64) {
            return None;
        }
        let context = Ctx::new(Container::Big, Endian::Little);
        let (at, count) = (header.e_shoff as usize, usize::from(header.e_shnum));
        let sections = SectionHeader::parse(data, at, count, context).ok()?;
        let sections = layout::sections(data, sections, header.e_shstrndx);
        Some(Self { data, sections })
    }
}

impl<'d> Image<'d> {
    /// Takes the names of functions from the separate debug file `data` as well. Nothing is taken where the image has
    /// all its symbols itself, or its sections of code are not those of the file.
    pub fn with_symbols_of(mut self, data: &'d [u8]) -> Self {
        let Some(file) = SymbolFile::parse(data) else {
            return self;
        };
        let has_all = self.sections.iter().any(|s| s.header.sh_type == SHT_SYMTAB);
        let mut code = self.sections.iter().filter(|s| s.holds_code()).peekable();
        let is_there = |own: &Section<'_>| {
            let mut same = file.sections.iter().filter(|s| s.holds_code());
            same.any(|s| s.name == own.name && s.range() == own.range())
        };
        if !has_all && code.peek().is_some() && code.all(is_there) {
            self.symbol_file = Some(file);
            self.functions = OnceLock::new();
        }
        self
    }
}
