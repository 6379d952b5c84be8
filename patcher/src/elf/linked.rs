//! Tables for the loader and the linker, in files for any machine and of any type. The file is read
//! as a whole.

use std::ops::Range;

use goblin::elf::header::ET_REL;
use goblin::elf::{Elf, Reloc, SectionHeader, Sym};

use crate::addr::Svma;
use crate::isa::Fill;
use crate::isa::elf::{fill, linked_word};

/// The tables of a file.
pub struct LinkTables<'d>(Elf<'d>);

/// A symbol.
#[derive(Clone, Copy, Debug)]
pub struct LinkSymbol {
    /// The symbol's link-time address. In an object file, its offset in its section, in bytes.
    pub value: u64,
    /// The size of the object that the symbol names, in bytes.
    pub size: u64,
    /// The index of the section that the symbol is defined in; 0 if it is undefined. Special
    /// indexes such as SHN_ABS are returned as stored.
    pub section: usize,
    /// True if the symbol names a function.
    pub is_function: bool,
    /// The offset of the symbol's name in its string table, in bytes.
    name: usize,
    /// True for a dynamic symbol, which has its name in the dynamic string table.
    is_dynamic: bool,
}

/// A section.
#[derive(Clone, Debug)]
pub struct LinkSection<'d> {
    /// The section's name; `None` if it cannot be read.
    pub name: Option<&'d str>,
    /// The section's byte range in the file; `None` if it has no bytes there. The range may reach
    /// beyond the file.
    pub range: Option<Range<usize>>,
    /// The link-time address of the section; 0 if it is not loaded.
    pub address: u64,
    /// The section's offset in the file, in bytes.
    pub offset: u64,
    /// True if the section is loaded.
    pub is_allocated: bool,
    /// True if the section contains code.
    pub is_executable: bool,
}

/// A part of the file that is loaded.
#[derive(Clone, Debug)]
pub struct LinkSegment {
    /// The segment's byte range in the file. It may reach beyond the file.
    pub file_range: Range<usize>,
    /// The link-time address of the segment.
    pub address: u64,
    /// The segment's size in memory, in bytes.
    pub size: u64,
    /// True if the segment is writable.
    pub write: bool,
}

/// A word that the loader or linker fills in.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// The link-time address of the word. In an object file, its offset in its section, in bytes.
    pub at: u64,
    /// The index of the relocation's symbol: among the dynamic symbols for the loader, among all
    /// symbols for the linker.
    pub symbol: usize,
    /// The value to add to the symbol's value; 0 if the relocation stores none.
    pub addend: u64,
    /// The processor-specific relocation type.
    pub kind: u32,
}

impl Relocation {
    fn of(relocation: &Reloc) -> Self {
        Self {
            at: relocation.r_offset,
            symbol: relocation.r_sym,
            addend: relocation.r_addend.unwrap_or(0) as u64,
            kind: relocation.r_type,
        }
    }

    /// The value that the loader stores in the word.
    pub fn fill(&self) -> Fill {
        fill(self.kind)
    }

    /// The value that the linker stores at `place` for a symbol with the value `symbol`, and its
    /// size in bytes. `None` for relocation types that debug information does not use.
    pub fn linked(&self, symbol: u64, place: u64) -> Option<(u64, usize)> {
        linked_word(self.kind, symbol.wrapping_add(self.addend), place)
    }
}

impl<'d> LinkTables<'d> {
    /// Reads the tables of the file `data`. The error is the ELF reader's message.
    pub fn parse(data: &'d [u8]) -> Result<Self, String> {
        Elf::parse(data).map(Self).map_err(|e| e.to_string())
    }

    /// True if the file is an object file, which is not linked yet.
    pub fn is_object(&self) -> bool {
        self.0.header.e_type == ET_REL
    }

    /// The name under which other files depend on this library (DT_SONAME), if it has one.
    pub fn soname(&self) -> Option<&'d str> {
        self.0.soname
    }

    /// True if the file requests a loader.
    pub fn has_interpreter(&self) -> bool {
        self.0.interpreter.is_some()
    }

    /// The dynamic symbols, which the loader needs.
    pub fn dynamic_symbols(&self) -> impl Iterator<Item = LinkSymbol> {
        self.0.dynsyms.iter().map(|symbol| of(&symbol, true))
    }

    /// The dynamic symbol at index `number`; `None` if there is none.
    pub fn dynamic_symbol(&self, number: usize) -> Option<LinkSymbol> {
        Some(of(&self.0.dynsyms.get(number)?, true))
    }

    /// All symbols; empty if they have been stripped.
    pub fn symbols(&self) -> impl Iterator<Item = LinkSymbol> {
        self.0.syms.iter().map(|symbol| of(&symbol, false))
    }

    /// The symbol at index `number` among all symbols; `None` if there is none.
    pub fn symbol(&self, number: usize) -> Option<LinkSymbol> {
        Some(of(&self.0.syms.get(number)?, false))
    }

    /// The name of a symbol; `None` if it cannot be read.
    pub fn name(&self, symbol: &LinkSymbol) -> Option<&'d str> {
        let names = if symbol.is_dynamic {
            &self.0.dynstrtab
        } else {
            &self.0.strtab
        };
        names.get_at(symbol.name)
    }

    /// The link-time address of the exported symbol `name`; `None` if the file exports none.
    pub fn exported(&self, name: &str) -> Option<Svma> {
        let mut defined = self.dynamic_symbols().filter(|s| s.section != 0);
        let found = defined.find(|symbol| self.name(symbol) == Some(name));
        found.map(|symbol| Svma(symbol.value))
    }

    /// True if the symbol `name` is among the dynamic symbols and not defined in the file.
    pub fn imports(&self, name: &str) -> bool {
        let mut imported = self.dynamic_symbols().filter(|s| s.section == 0);
        imported.any(|symbol| self.name(&symbol) == Some(name))
    }

    /// The file's sections, in the order of their indexes.
    pub fn sections(&self) -> impl Iterator<Item = LinkSection<'d>> {
        self.0.section_headers.iter().map(|header| LinkSection {
            name: self.0.shdr_strtab.get_at(header.sh_name),
            range: header.file_range(),
            address: header.sh_addr,
            offset: header.sh_offset,
            is_allocated: header.is_alloc(),
            is_executable: header.is_executable(),
        })
    }

    /// The link-time address of the section with index `number`; `None` if there is none.
    pub fn section_address(&self, number: usize) -> Option<u64> {
        self.header(number).map(|header| header.sh_addr)
    }

    fn header(&self, number: usize) -> Option<&SectionHeader> {
        self.0.section_headers.get(number)
    }

    /// The loaded segments.
    pub fn segments(&self) -> impl Iterator<Item = LinkSegment> {
        use goblin::elf::program_header::PT_LOAD;
        let loaded = self.0.program_headers.iter();
        let loaded = loaded.filter(|program| program.p_type == PT_LOAD);
        loaded.map(|program| LinkSegment {
            file_range: program.file_range(),
            address: program.p_vaddr,
            size: program.p_memsz,
            write: program.is_write(),
        })
    }

    /// The words that the loader fills in, except for those of linkage stubs and those with compact
    /// relocations (DT_RELR).
    pub fn dynamic_relocations(&self) -> impl Iterator<Item = Relocation> {
        self.0.dynrelas.iter().map(|r| Relocation::of(&r))
    }

    /// The words that are filled in at program start, except for those with compact relocations
    /// (DT_RELR). A static program fills them in itself. It has no dynamic section, so the
    /// relocations of its sections are used.
    pub fn filled_at_start(&self) -> Vec<Relocation> {
        let dynamic = self.0.dynrelas.iter().chain(self.0.pltrelocs.iter());
        let sections = self.0.shdr_relocs.iter();
        let sections = sections.flat_map(|(_, section)| section.iter());
        if self.0.dynamic.is_some() {
            dynamic.map(|r| Relocation::of(&r)).collect()
        } else {
            sections.map(|r| Relocation::of(&r)).collect()
        }
    }

    /// The words that the linker fills in, in the section with index `section`.
    pub fn relocations_of(&self, section: usize) -> impl Iterator<Item = Relocation> {
        let all = self.0.shdr_relocs.iter();
        let own = all.filter(move |(index, _)| {
            let header = self.header(*index);
            header.is_some_and(|header| header.sh_info as usize == section)
        });
        own.flat_map(|(_, relocations)| relocations.iter().map(|r| Relocation::of(&r)))
    }
}

fn of(symbol: &Sym, is_dynamic: bool) -> LinkSymbol {
    LinkSymbol {
        value: symbol.st_value,
        size: symbol.st_size,
        section: symbol.st_shndx,
        is_function: symbol.is_function(),
        name: symbol.st_name,
        is_dynamic,
    }
}
