//! What a file tells the loader and the linker, of whatever machine and kind: it is read as a whole.

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
    /// Its address; in an object file, from the start of its section on.
    pub value: u64,
    /// Bytes of what it names.
    pub size: u64,
    /// The section that it is defined in; 0 for none.
    pub section: usize,
    /// Does it name a function?
    pub is_function: bool,
    name: usize,
    is_dynamic: bool,
}

/// A section.
#[derive(Clone, Debug)]
pub struct LinkSection<'d> {
    /// Its name.
    pub name: Option<&'d str>,
    /// Its bytes in the file, if it has any. They may reach beyond the file.
    pub range: Option<Range<usize>>,
    /// Where it is loaded; 0 where it is not.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Is it loaded?
    pub is_allocated: bool,
    /// Does it have code?
    pub is_executable: bool,
}

/// A part of the file that is loaded.
#[derive(Clone, Debug)]
pub struct LinkSegment {
    /// Its bytes in the file. They may reach beyond the file.
    pub file_range: Range<usize>,
    /// Where it is loaded.
    pub address: u64,
    /// Bytes of it once it is loaded.
    pub size: u64,
    /// Can it be written?
    pub write: bool,
}

/// A word that is to be filled in.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// Where it is; in an object file, from the start of its section on.
    pub at: u64,
    /// The number of its symbol.
    pub symbol: usize,
    /// What is added.
    pub addend: u64,
    /// The number of its kind.
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

    /// What the loader fills in.
    pub fn fill(&self) -> Fill {
        fill(self.kind)
    }

    /// What the linker fills in at `place` for a symbol with this value, and the bytes of that; `None` for other kinds.
    pub fn linked(&self, symbol: u64, place: u64) -> Option<(u64, usize)> {
        linked_word(self.kind, symbol.wrapping_add(self.addend), place)
    }
}

impl<'d> LinkTables<'d> {
    /// Reads the tables of the file `data`. The error is in the words of the reader.
    pub fn parse(data: &'d [u8]) -> Result<Self, String> {
        Elf::parse(data).map(Self).map_err(|e| e.to_string())
    }

    /// Is it an object file, which is not linked yet?
    pub fn is_object(&self) -> bool {
        self.0.header.e_type == ET_REL
    }

    /// The name that a library has for others.
    pub fn soname(&self) -> Option<&'d str> {
        self.0.soname
    }

    /// Does it ask for a loader?
    pub fn has_interpreter(&self) -> bool {
        self.0.interpreter.is_some()
    }

    /// The symbols that the loader needs.
    pub fn dynamic_symbols(&self) -> impl Iterator<Item = LinkSymbol> {
        self.0.dynsyms.iter().map(|symbol| of(&symbol, true))
    }

    /// A symbol of these by its number.
    pub fn dynamic_symbol(&self, number: usize) -> Option<LinkSymbol> {
        Some(of(&self.0.dynsyms.get(number)?, true))
    }

    /// All symbols, if the file has them.
    pub fn symbols(&self) -> impl Iterator<Item = LinkSymbol> {
        self.0.syms.iter().map(|symbol| of(&symbol, false))
    }

    /// A symbol of these by its number.
    pub fn symbol(&self, number: usize) -> Option<LinkSymbol> {
        Some(of(&self.0.syms.get(number)?, false))
    }

    /// The name of a symbol.
    pub fn name(&self, symbol: &LinkSymbol) -> Option<&'d str> {
        let names = if symbol.is_dynamic {
            &self.0.dynstrtab
        } else {
            &self.0.strtab
        };
        names.get_at(symbol.name)
    }

    /// Where the symbol of this name is that it has for other files.
    pub fn exported(&self, name: &str) -> Option<Svma> {
        let mut defined = self.dynamic_symbols().filter(|s| s.section != 0);
        let found = defined.find(|symbol| self.name(symbol) == Some(name));
        found.map(|symbol| Svma(symbol.value))
    }

    /// Does it take the symbol of this name from another file?
    pub fn imports(&self, name: &str) -> bool {
        let mut imported = self.dynamic_symbols().filter(|s| s.section == 0);
        imported.any(|symbol| self.name(&symbol) == Some(name))
    }

    /// Its sections, by their numbers.
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

    /// Where a section is loaded, by its number.
    pub fn section_address(&self, number: usize) -> Option<u64> {
        self.header(number).map(|header| header.sh_addr)
    }

    fn header(&self, number: usize) -> Option<&SectionHeader> {
        self.0.section_headers.get(number)
    }

    /// What is loaded.
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

    /// The words that the loader fills in but for those of linkage stubs.
    pub fn dynamic_relocations(&self) -> impl Iterator<Item = Relocation> {
        self.0.dynrelas.iter().map(|r| Relocation::of(&r))
    }

    /// All words that are filled in when the program starts. A static program does that itself: it has no dynamic section,
    /// and what its sections have is all.
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

    /// The words of a section that the linker fills in, by the number of the section.
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
