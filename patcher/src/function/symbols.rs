//! The symbols that name code: ELF gABI, Symbol Table.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::go;
use super::names::{name_in, owner_of_part};
use super::symbol::{Symbol, Texts};
use crate::addr::{FileOffset, Svma};
use crate::elf::{ElfFile, Section, section_bytes};
use crate::tables::Pclntab;

/// A file with symbol tables.
struct Tables<'s, 'd> {
    data: &'d [u8],
    sections: &'s [Section<'d>],
    /// True for the separate debug file.
    is_separate: bool,
}

/// The symbols of all tables that name code defined in this file.
///
/// They are ordered by address, then by precedence. Each name of an address occurs once.
pub(super) fn symbols<'t, 'd: 't>(
    elf: &ElfFile<'d>,
    pclntab: impl FnOnce() -> Option<&'t Pclntab<'d>>,
) -> Vec<Symbol> {
    let texts = Texts::of(elf);
    let mut symbols = Vec::new();
    let own = Tables {
        data: elf.data(),
        sections: elf.sections(),
        is_separate: false,
    };
    let separate = elf.symbol_file().map(|other| Tables {
        data: other.data,
        sections: &other.sections,
        is_separate: true,
    });
    let mut all = own.sections.iter();
    if !all.any(Section::holds_all_symbols) && separate.is_none() {
        // A stripped Go program still contains the names in its runtime's table.
        symbols = pclntab().map_or_else(Vec::new, |table| go::functions(elf, table));
    }
    for tables in [Some(own), separate].into_iter().flatten() {
        let mut seen = HashSet::new();
        for section in tables.sections {
            let table = (section.header.sh_offset, section.header.sh_size);
            // A damaged file could list the same table a thousand times.
            if section.holds_symbols() && seen.insert(table) && seen.len() <= 2 {
                read(elf, &tables, section, &mut symbols);
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

/// Keeps the first symbol for each name of an address.
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
    elf: &ElfFile<'_>,
    tables: &Tables<'_, '_>,
    table: &Section<'_>,
    symbols: &mut Vec<Symbol>,
) {
    const ENTRY: usize = 24;
    const STT_FILE: u8 = 4;
    let Some(names) = tables.sections.get(table.header.sh_link as usize) else {
        return;
    };
    let Some(bytes) = section_bytes(tables.data, &table.header) else {
        return;
    };
    let mut file = 0;
    for entry in bytes.chunks_exact(ENTRY) {
        if entry[4] & 0xf == STT_FILE {
            file += 1;
        }
        symbols.extend(symbol(elf, tables, names, entry, file));
    }
}

fn symbol(
    elf: &ElfFile<'_>,
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
    // LLVM's basic block sections start with local labels that have a size.
    let may_be_part = kind == STT_NOTYPE && bind == STB_LOCAL && size > 0;
    let names_code = is_label || may_be_part || kind == STT_FUNC || kind == STT_GNU_IFUNC;
    let is_in_code = || elf.is_code(start) && is_in_code(tables.sections, section, start);
    if !names_code || u64::from(name) >= names.header.sh_size || !is_in_code() {
        return None;
    }
    let name = FileOffset(names.header.sh_offset.checked_add(name.into())?);
    let text = name_in(tables.data.get(usize::try_from(name.0).ok()?..)?);
    if text.is_empty() || is_label && is_mark(text) || is_mark_of_go(text) {
        return None;
    }
    if may_be_part && owner_of_part(text).is_none() {
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

/// True if a symbol in the section `index` at `start` can name code of `sections`.
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

/// True for the names that Go's linker gives to the ends of the text, marked as functions.
fn is_mark_of_go(name: &str) -> bool {
    matches!(name, "runtime.text" | "runtime.etext")
}

/// True for names that the linker gives to locations, not to functions.
fn is_mark(name: &str) -> bool {
    matches!(
        name,
        "etext" | "_etext" | "__etext" | "__executable_start" | "__ehdr_start"
    ) || name.starts_with("__start_")
        || name.starts_with("__stop_")
}
