//! Symbols of an ELF file by name, found without reading all other names. A program may have
//! hundreds of thousands (gABI, chapter 4, "Symbol Table").

use memchr::memmem;
use patcher::Svma;
use patcher::elf::{LinkTables, symbol_rows};

use crate::lines;

/// The symbol tables of a file, each with the section of its names.
const TABLES: [(&str, &str); 2] = [(".dynsym", ".dynstr"), (".symtab", ".strtab")];

/// The values of the symbols that the file defines with these names, in the order of `names`.
/// `None` for a name without a symbol. Exported symbols take precedence, then the first one.
pub fn defined<const N: usize>(data: &[u8], names: [&str; N]) -> [Option<Svma>; N] {
    let mut found = [None; N];
    let mut has_table = false;
    for (symbols, strings) in TABLES {
        let sections = lines::section(data, symbols).zip(lines::section(data, strings));
        let Some((symbols, strings)) = sections else {
            continue;
        };
        has_table = true;
        let places = names.map(|name| places(&strings, name));
        if places.iter().all(Vec::is_empty) {
            continue;
        }
        for symbol in symbol_rows(&symbols).filter(|symbol| symbol.is_defined) {
            let of = |places: &Vec<usize>| places.binary_search(&symbol.name).is_ok();
            if let Some(which) = places.iter().position(of) {
                found[which].get_or_insert(Svma(symbol.value));
            }
        }
    }
    if has_table {
        found
    } else {
        exported(data, names)
    }
}

/// As [`defined`], for a file without section headers. The loader finds exported symbols by the
/// dynamic section.
fn exported<const N: usize>(data: &[u8], names: [&str; N]) -> [Option<Svma>; N] {
    let Ok(tables) = LinkTables::parse(data) else {
        return [None; N];
    };
    names.map(|name| tables.exported(name))
}

/// The offsets in bytes of a name in a string table, ascending. The name may be the end of a longer
/// one.
fn places(strings: &[u8], name: &str) -> Vec<usize> {
    let ends = |at: &usize| strings.get(at + name.len()) == Some(&0);
    memmem::find_iter(strings, name).filter(ends).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use goblin::elf::Elf;

    use super::*;

    /// Compares with goblin, which reads all symbols: of this program, and of a library without
    /// `.symtab`.
    #[test]
    fn symbols_are_those_of_the_whole_table() {
        let own = std::env::current_exe().expect("a path");
        let maps = fs::read_to_string("/proc/self/maps").expect("own maps");
        let libc = maps.lines().find_map(|line| {
            let path = &line[line.find('/')?..];
            path.contains("/libc.so").then(|| path.into())
        });
        let mut compared = 0;
        for path in [Some(own), libc].into_iter().flatten() {
            let data = fs::read(&path).expect("it is read");
            let elf = Elf::parse(&data).expect("an ELF file");
            let exported = elf.dynsyms.iter().zip(std::iter::repeat(&elf.dynstrtab));
            let others = elf.syms.iter().zip(std::iter::repeat(&elf.strtab));
            let all: Vec<(&str, u64)> = (exported.chain(others))
                .filter(|(symbol, _)| symbol.st_shndx != 0)
                .filter_map(|(symbol, names)| {
                    Some((names.get_at(symbol.st_name)?, symbol.st_value))
                })
                .collect();
            for &(name, _) in all
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .step_by(all.len() / 20)
            {
                let first = all
                    .iter()
                    .find(|(other, _)| *other == name)
                    .map(|(_, at)| Svma(*at));
                let none = "no symbol has this name";
                assert_eq!(defined(&data, [none, name]), [None, first], "{name}");
                compared += 1;
            }
        }
        assert!(compared > 20, "{compared} names");
    }

    #[test]
    fn exported_symbols_need_no_section_headers() {
        let maps = fs::read_to_string("/proc/self/maps").expect("own maps");
        let path = maps.lines().find_map(|line| {
            let path = &line[line.find('/')?..];
            path.contains("/libc.so").then_some(path)
        });
        let mut data = fs::read(path.expect("a C library")).expect("it is read");
        let names = ["malloc", "no symbol has this name"];
        let with = defined(&data, names);
        // e_shoff, and e_shentsize, e_shnum, e_shstrndx
        data[0x28..0x30].fill(0);
        data[0x3a..0x40].fill(0);
        assert!(with[0].is_some() && with[1].is_none());
        assert_eq!(defined(&data, names), with);
    }
}
