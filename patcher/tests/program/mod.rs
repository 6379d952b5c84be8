//! A small ELF file around given code, and the layout of its mapping.
#![allow(dead_code, reason = "each test binary uses its share")]

/// The offset of the code in the file, and its address.
pub const TEXT: u64 = 0x1000;
/// The offset and address of the writable data, which is one page.
pub const DATA: u64 = 0x3000;
/// The address of the trampolines.
pub const TRAMPOLINES: u64 = 0x4000;
/// The address at which hooks log that they have run.
pub const LOG: u64 = 0x9000;
/// The total size, in bytes.
pub const SIZE: usize = 0xa000;

/// A function symbol: name, address, size.
pub type Symbol<'a> = (&'a str, u64, u64);

/// An `ET_DYN` file with one executable segment for `code` at [`TEXT`], one writable segment at
/// [`DATA`], and `symbols`.
pub fn elf(code: &[u8], symbols: &[Symbol<'_>]) -> Vec<u8> {
    assert!(
        code.len() as u64 <= DATA - TEXT,
        "the code fits its segment"
    );
    let mut file = vec![0; DATA as usize + 0x1000];
    file[TEXT as usize..][..code.len()].copy_from_slice(code);
    let mut strings = vec![0];
    let mut table = vec![0; 24];
    for (name, at, size) in symbols {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([0x12, 0]); // STB_GLOBAL, STT_FUNC
        table.extend(1u16.to_le_bytes()); // in .text
        table.extend(at.to_le_bytes());
        table.extend(size.to_le_bytes());
        strings.extend(name.bytes());
        strings.push(0);
    }
    let names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let symbols_at = file.len();
    file.extend(&table);
    let strings_at = file.len();
    file.extend(&strings);
    let names_at = file.len();
    file.extend(names);
    let sections_at = file.len();
    // name, type, flags, address, offset, size, link, info, align, entry size
    let sections: [[u64; 10]; 5] = [
        [0; 10],
        [1, 1, 6, TEXT, TEXT, code.len() as u64, 0, 0, 16, 0],
        [
            7,
            2,
            0,
            0,
            symbols_at as u64,
            table.len() as u64,
            3,
            1,
            8,
            24,
        ],
        [
            15,
            3,
            0,
            0,
            strings_at as u64,
            strings.len() as u64,
            0,
            0,
            1,
            0,
        ],
        [23, 3, 0, 0, names_at as u64, names.len() as u64, 0, 0, 1, 0],
    ];
    for section in sections {
        file.extend(section_header(section));
    }
    let header = headers(sections_at as u64, sections.len() as u16);
    file[..header.len()].copy_from_slice(&header);
    file
}

fn section_header(fields: [u64; 10]) -> Vec<u8> {
    let [
        name,
        kind,
        flags,
        at,
        offset,
        size,
        link,
        info,
        align,
        entry,
    ] = fields;
    let half = |value: u64| (value as u32).to_le_bytes().to_vec();
    let word = |value: u64| value.to_le_bytes().to_vec();
    [
        [name, kind].map(half).concat(),
        [flags, at, offset, size].map(word).concat(),
        [link, info].map(half).concat(),
        [align, entry].map(word).concat(),
    ]
    .concat()
}

/// The header of the file, and the headers of its two segments.
fn headers(sections_at: u64, sections: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    header.extend(3u16.to_le_bytes()); // ET_DYN
    header.extend(62u16.to_le_bytes()); // EM_X86_64
    header.extend(1u32.to_le_bytes());
    for word in [TEXT, 64, sections_at] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0u32.to_le_bytes());
    for half in [64, 56, 2, 64, sections, sections - 1] {
        header.extend(half.to_le_bytes());
    }
    for (flags, at, size) in [(5u32, TEXT, DATA - TEXT), (6, DATA, 0x1000)] {
        header.extend(1u32.to_le_bytes()); // PT_LOAD
        header.extend(flags.to_le_bytes());
        for word in [at, at, at, size, size, 0x1000] {
            header.extend(word.to_le_bytes());
        }
    }
    header
}
