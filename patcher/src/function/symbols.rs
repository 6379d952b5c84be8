//! The symbols that name code: ELF gABI, Symbol Table.

use std::cmp::Reverse;
use std::collections::HashSet;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};

use super::go;
use super::names::name_in;
use crate::addr::Svma;
use crate::image::{Image, Section, file_range};

/// A symbol that names code. Its text stays in the file.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    pub(super) start: Svma,
    /// Bytes; 0 where it is not said.
    pub(super) size: u64,
    /// Where its name, without version, stands in its file, and its length.
    name: u64,
    name_len: u32,
    /// Is that the separate debug file?
    is_separate: bool,
    /// The source file it is local to, counted from 1; 0 for none.
    pub(super) file: u32,
    /// Which of several names of one address is the first: global, weak, local.
    rank: u8,
    pub(super) is_ifunc: bool,
    /// Only its place says that it names code: an assembler label.
    pub(super) is_label: bool,
}

impl Symbol {
    /// Code of `size` bytes whose name, of so many bytes, stands at `name` in the file.
    pub(super) fn new(start: Svma, size: u64, name: u64, name_len: usize) -> Option<Self> {
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

    /// Its name, from the file it stands in.
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

/// The files in which names stand.
#[derive(Clone, Copy)]
pub(super) struct Texts<'d> {
    own: &'d [u8],
    /// The separate debug file; empty without one.
    separate: &'d [u8],
}

impl<'d> Texts<'d> {
    pub(super) fn of(image: &Image<'d>) -> Self {
        Self {
            own: image.data(),
            separate: image.symbol_file().map_or(&[], |file| file.data),
        }
    }
}

/// A file with tables of symbols.
struct Tables<'s, 'd> {
    data: &'d [u8],
    sections: &'s [Section<'d>],
    is_separate: bool,
}

/// The symbols of both tables that name code defined here, ordered by address, then by precedence
/// as names, each name of an address once.
pub(super) fn symbols(image: &Image<'_>) -> Vec<Symbol> {
    let texts = Texts::of(image);
    let mut symbols = Vec::new();
    let own = Tables {
        data: image.data(),
        sections: image.sections(),
        is_separate: false,
    };
    let separate = image.symbol_file().map(|file| Tables {
        data: file.data,
        sections: &file.sections,
        is_separate: true,
    });
    let mut all = own.sections.iter();
    if !all.any(|s| s.header.sh_type == SHT_SYMTAB) && separate.is_none() {
        // Of the names that a stripped program has lost it may still know some itself.
        symbols = go::functions(image);
    }
    for tables in [Some(own), separate].into_iter().flatten() {
        let mut seen = HashSet::new();
        for section in tables.sections {
            let table = (section.header.sh_offset, section.header.sh_size);
            let is_table = matches!(section.header.sh_type, SHT_SYMTAB | SHT_DYNSYM);
            // A damaged file could have one table a thousand times.
            if is_table && seen.insert(table) && seen.len() <= 2 {
                read(image, &tables, section, &mut symbols);
            }
        }
    }
    symbols.sort_unstable_by(|a, b| {
        a.start.cmp(&b.start).then_with(|| {
            let (a_name, b_name) = (a.name(texts), b.name(texts));
            let key = |s: &Symbol, name: &str| {
                (
                    s.is_label,
                    s.rank,
                    name.len() - name.trim_start_matches('_').len(),
                )
            };
            key(a, a_name).cmp(&key(b, b_name)).then_with(|| {
                (a_name, Reverse(a.size), a.file).cmp(&(b_name, Reverse(b.size), b.file))
            })
        })
    });
    dedup(texts, &mut symbols);
    symbols.shrink_to_fit();
    symbols
}

/// One symbol for each name of an address, the first.
fn dedup(texts: Texts<'_>, symbols: &mut Vec<Symbol>) {
    let mut names = HashSet::new();
    let mut start = None;
    symbols.retain(|symbol| {
        if start != Some(symbol.start) {
            start = Some(symbol.start);
            names.clear();
        }
        names.insert(symbol.name(texts))
    });
}

fn read(
    image: &Image<'_>,
    tables: &Tables<'_, '_>,
    table: &Section<'_>,
    symbols: &mut Vec<Symbol>,
) {
    const ENTRY: usize = 24;
    const STT_FILE: u8 = 4;
    let header = &table.header;
    let Some(names) = tables.sections.get(header.sh_link as usize) else {
        return;
    };
    let Some(bytes) = file_range(tables.data, header.sh_offset, header.sh_size) else {
        return;
    };
    let mut file = 0;
    for entry in bytes.chunks_exact(ENTRY) {
        if entry[4] & 0xf == STT_FILE {
            file += 1;
        }
        symbols.extend(symbol(image, tables, names, entry, file));
    }
}

fn symbol(
    image: &Image<'_>,
    tables: &Tables<'_, '_>,
    names: &Section<'_>,
    entry: &[u8],
    file: u32,
) -> Option<Symbol> {
    const STB_LOCAL: u8 = 0;
    const STB_WEAK: u8 = 2;
    const STT_NOTYPE: u8 = 0;
    const STT_FUNC: u8 = 2;
    const STT_GNU_IFUNC: u8 = 10;
    let name = u32::from_le_bytes(*entry.first_chunk()?);
    let (info, section) = (entry[4], u16::from_le_bytes([entry[6], entry[7]]));
    let start = Svma(u64::from_le_bytes(*entry[8..].first_chunk()?));
    let size = u64::from_le_bytes(*entry[16..].first_chunk()?);
    let (kind, bind) = (info & 0xf, info >> 4);
    let is_label = kind == STT_NOTYPE && bind != STB_LOCAL;
    let names_code = is_label || kind == STT_FUNC || kind == STT_GNU_IFUNC;
    let is_in_code = || image.is_code(start) && is_in_code(tables.sections, section, start);
    if !names_code || u64::from(name) >= names.header.sh_size || !is_in_code() {
        return None;
    }
    let name = names.header.sh_offset.checked_add(name.into())?;
    let text = name_in(tables.data.get(usize::try_from(name).ok()?..)?);
    if text.is_empty() || is_label && is_mark(text) || is_mark_of_go(text) {
        return None;
    }
    let rank = match bind {
        STB_LOCAL => 2,
        STB_WEAK => 1,
        _ => 0,
    };
    let file = if bind == STB_LOCAL { file } else { 0 };
    let is_ifunc = kind == STT_GNU_IFUNC;
    let name_len = u32::try_from(text.len()).ok()?;
    Some(Symbol {
        start,
        size,
        name,
        name_len,
        is_separate: tables.is_separate,
        file,
        rank,
        is_ifunc,
        is_label,
    })
}

/// Whether a symbol that stands in the section `index` and at `start` can name code of these sections.
fn is_in_code(sections: &[Section<'_>], index: u16, start: Svma) -> bool {
    const SHN_UNDEF: u16 = 0;
    const SHN_LORESERVE: u16 = 0xff00;
    const SHN_XINDEX: u16 = 0xffff;
    if index == SHN_UNDEF || index >= SHN_LORESERVE && index != SHN_XINDEX {
        return false;
    }
    match sections.get(usize::from(index)) {
        Some(section) => {
            section.holds_code() && section.range().contains(&start) && !section.is_plt()
        }
        None => true,
    }
}

/// Names that Go's linker gives to the ends of the text, in the likeness of functions.
fn is_mark_of_go(name: &str) -> bool {
    matches!(name, "runtime.text" | "runtime.etext")
}

/// Names that the linker gives to places, not to functions.
fn is_mark(name: &str) -> bool {
    matches!(
        name,
        "etext" | "_etext" | "__etext" | "__executable_start" | "__ehdr_start"
    ) || name.starts_with("__start_")
        || name.starts_with("__stop_")
}
