//! The unwind tables of this process's own libraries, read by this module and by gimli.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, UnwindContext, UnwindSection,
};

use super::*;
use crate::code::modules::Modules;
use crate::os::maps;
use unwind::arch::register::COLUMNS;

/// One address of libc or this program with gimli's rules: CFA, and the offsets of saved registers.
#[derive(Debug, PartialEq)]
struct Expected {
    cfa: Option<(usize, i64)>,
    saved: BTreeMap<usize, Option<i64>>,
}

fn gimli_row(row: &gimli::UnwindTableRow<usize>) -> Expected {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some((register.0.into(), *offset)),
        CfaRule::Expression(_) => None,
    };
    let mut saved = BTreeMap::new();
    for column in 0..COLUMNS {
        match row.register(Register(column as u16)) {
            Some(gimli::RegisterRule::Offset(offset)) => saved.insert(column, Some(offset)),
            None | Some(gimli::RegisterRule::Undefined | gimli::RegisterRule::SameValue) => None,
            Some(_) => saved.insert(column, None),
        };
    }
    Expected { cfa, saved }
}

fn our_row(row: &Row) -> Expected {
    let cfa = match row.cfa {
        Cfa::Register(register, offset) => Some((register, offset)),
        Cfa::Expression(_) => None,
    };
    let mut saved = BTreeMap::new();
    for (column, rule) in row.registers.iter().enumerate() {
        match rule {
            RegisterRule::Offset(offset) => saved.insert(column, Some(*offset)),
            RegisterRule::Undefined | RegisterRule::Same => None,
            _ => saved.insert(column, None),
        };
    }
    Expected { cfa, saved }
}

/// Every executable file of this process with the address of its first mapping.
fn files() -> Vec<(std::string::String, u64)> {
    let mut files: Vec<(std::string::String, u64)> = Vec::new();
    maps::for_each(|mapping, path| {
        let path = std::string::String::from_utf8_lossy(path).into_owned();
        if path.starts_with('/') && mapping.offset == 0 && files.iter().all(|f| f.0 != path) {
            files.push((path, mapping.start));
        }
        true
    })
    .expect("maps can be read");
    files
}

#[test]
fn agrees_with_gimli_on_every_row_of_the_process() {
    let modules = Modules::new();
    let mut rows = 0;
    for (path, start) in files() {
        let data = std::fs::read(&path).expect("a file that is mapped");
        let Ok(elf) = goblin::elf::Elf::parse(&data) else {
            continue;
        };
        let section = elf
            .section_headers
            .iter()
            .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".eh_frame"));
        let Some(section) = section else { continue };
        let bytes = &data[section.sh_offset as usize..][..section.sh_size as usize];
        let eh_frame = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(section.sh_addr);
        let mut entries = eh_frame.entries(&bases);
        let mut context = UnwindContext::new();
        while let Some(entry) = entries.next().expect("a sound section") {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let fde = partial
                .parse(EhFrame::cie_from_offset)
                .expect("a sound entry");
            if fde.len() == 0 {
                continue;
            }
            let mut table = fde
                .rows(&eh_frame, &bases, &mut context)
                .expect("a sound program");
            while let Some(row) = table.next_row().expect("a sound program") {
                if row.start_address() >= row.end_address() {
                    continue;
                }
                let expected = gimli_row(row);
                for svma in [row.start_address(), row.end_address() - 1] {
                    let avma = svma + start;
                    let range = modules.find(avma).expect("code is mapped executable");
                    let tables = range.tables.expect("it has a header");
                    let ours = tables.find(avma);
                    let ours = ours.unwrap_or_else(|| panic!("{path} {svma:#x}: no FDE"));
                    assert_eq!(
                        ours.start - start,
                        fde.initial_address(),
                        "{path} {svma:#x}"
                    );
                    let ours = row_at(&ours, avma).unwrap_or_else(|| panic!("{path} {svma:#x}"));
                    assert_eq!(our_row(&ours), expected, "{path} {svma:#x}");
                    rows += 1;
                }
            }
        }
    }
    assert!(rows > 50_000, "{rows} rows");
}

#[test]
fn hostile_tables_end_quietly() {
    let modules = Modules::new();
    let here = agrees_with_gimli_on_every_row_of_the_process as *const () as u64;
    let tables = modules
        .find(here)
        .and_then(|r| r.tables)
        .expect("Rust programs have tables");
    let len = (tables.region.end() - tables.region.start()).min(1 << 20) as usize;
    let from = tables.header().expect("a .eh_frame_hdr");
    let len = len.min((tables.region.end() - from) as usize);
    // SAFETY: inside a region that is mapped and readable.
    let original = unsafe { std::slice::from_raw_parts(from as *const u8, len) };
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut copy = original.to_vec();
    for _ in 0..2000 {
        let changes: Vec<(usize, u8)> = (0..8)
            .map(|_| (next() as usize % len, next() as u8))
            .collect();
        for &(at, byte) in &changes {
            copy[at] = byte;
        }
        let start = copy.as_ptr() as u64;
        // SAFETY: the vector outlives its use here.
        let region = unsafe { Region::new(start, start + len as u64) };
        let pc = start
            .wrapping_add(here.wrapping_sub(from))
            .wrapping_add(next() % 4096);
        if let Some(fde) = find_fde(region, start, pc) {
            let _ = row_at(&fde, pc);
        }
        for &(at, _) in &changes {
            copy[at] = original[at];
        }
    }
}

/// An `.eh_frame_hdr` at `at` with its entries, for `count` functions at intervals of `stride`
/// bytes from `code` on.
fn tables_of(at: u64, code: u64, stride: u64, count: u32) -> Vec<u8> {
    let mut header = vec![1, 0x1b, 0x03, 0x3b];
    header.extend([0; 4]);
    header.extend(count.to_le_bytes());
    let frames = header.len() as u64 + 8 * u64::from(count);
    // Version 1, "zR", alignments of 1 and -8, the return address in column 16, pc-relative
    // addresses.
    let cie = *b"\x10\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\0\0\0";
    let mut entries = cie.to_vec();
    for index in 0..u64::from(count) {
        let start = code + index * stride;
        let offset = frames + entries.len() as u64;
        header.extend((start.wrapping_sub(at) as u32).to_le_bytes());
        header.extend((offset as u32).to_le_bytes());
        entries.extend(16u32.to_le_bytes());
        entries.extend((entries.len() as u32).to_le_bytes());
        let place = at + offset + 8;
        entries.extend((start.wrapping_sub(place) as u32).to_le_bytes());
        entries.extend((stride as u32).to_le_bytes());
        entries.extend([0; 4]);
    }
    header.extend(entries);
    header
}

#[test]
fn tables_that_others_have_taken_the_place_of_are_searched_anew() {
    const COUNT: u32 = 1000;
    let mut memory = vec![0; 1 << 16];
    let at = memory.as_ptr() as u64;
    let code = at + (1 << 20);
    // SAFETY: the vector outlives its use here.
    let region = unsafe { Region::new(at, at + memory.len() as u64) };
    for stride in [16, 48, 32] {
        let tables = tables_of(at, code, stride, COUNT);
        memory[..tables.len()].copy_from_slice(&tables);
        std::hint::black_box(&memory);
        for index in 0..u64::from(COUNT) {
            let start = code + index * stride;
            let fde = find_fde(region, at, start + 7);
            let found = fde.map(|fde| (fde.start, fde.end));
            assert_eq!(found, Some((start, start + stride)), "{index} of {stride}");
        }
        let end = code + u64::from(COUNT) * stride;
        assert!(find_fde(region, at, code - 1).is_none());
        assert!(find_fde(region, at, end).is_none());
    }
}
