//! The sections of a file for any machine, as stored. Only their headers are read, because files
//! with debug information are large.

use std::collections::HashMap;
use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::compression_header::{CompressionHeader, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use goblin::elf::section_header::SHF_COMPRESSED;
use goblin::elf::{Elf, SectionHeader, header};

use super::bytes::{half, word};

const CTX: Ctx = Ctx {
    container: Container::Big,
    le: Endian::Little,
};

/// A section as it is in the file.
#[derive(Clone, Debug)]
pub struct StoredSection {
    /// The section's byte range in the file; `None` if it has no bytes there. The range may reach
    /// beyond the file.
    pub range: Option<Range<usize>>,
    /// True if the bytes are compressed, after a header that describes the compression
    /// ([`compressed`]).
    pub is_compressed: bool,
}

/// The sections of the 64-bit little-endian ELF file `data`, by name. `None` if `data` is no such
/// file, or its headers cannot be read. Of several sections with one name, the last is returned.
/// Sections whose names cannot be read are left out.
pub fn stored_sections(data: &[u8]) -> Option<HashMap<String, StoredSection>> {
    let elf = Elf::parse_header(data).ok()?;
    if elf.e_ident[header::EI_CLASS] != header::ELFCLASS64 || elf.endianness().ok()? != CTX.le {
        return None;
    }
    let at = usize::try_from(elf.e_shoff).ok()?;
    if at == 0 {
        return None;
    }
    // Counts that do not fit into the header are in section 0 (gABI, e_shnum).
    let first = SectionHeader::parse(data, at, 1, CTX)
        .ok()?
        .into_iter()
        .next()?;
    let count = match elf.e_shnum {
        0 => usize::try_from(first.sh_size).ok()?,
        n => n.into(),
    };
    const SHN_XINDEX: u16 = 0xffff;
    let names = match elf.e_shstrndx {
        SHN_XINDEX => first.sh_link as usize,
        n => n.into(),
    };
    // A count that the file cannot hold must not make the parser reserve memory for it.
    if count > data.len() / SectionHeader::size(CTX) {
        return None;
    }
    let headers = SectionHeader::parse(data, at, count, CTX).ok()?;
    let names = data.get(headers.get(names)?.file_range()?)?;
    let name = |h: &SectionHeader| {
        let text = names.get(h.sh_name..)?;
        let text = &text[..text.iter().position(|&b| b == 0)?];
        Some(std::str::from_utf8(text).ok()?.to_owned())
    };
    let stored = |header: &SectionHeader| StoredSection {
        range: header.file_range(),
        is_compressed: header.sh_flags & u64::from(SHF_COMPRESSED) != 0,
    };
    let sections = headers.iter();
    Some(
        sections
            .filter_map(|header| Some((name(header)?, stored(header))))
            .collect(),
    )
}

/// The compression of a section (gABI, `ch_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
    /// Any other compression.
    Other,
}

/// Splits a compressed section into its compression, its uncompressed size in bytes, and the
/// compressed bytes. `None` if it is shorter than its header.
pub fn compressed(bytes: &[u8]) -> Option<(Compression, u64, &[u8])> {
    let form = CompressionHeader::parse(bytes, 0, CTX).ok()?;
    let packed = bytes.get(CompressionHeader::size(CTX)..)?;
    let by = match form.ch_type {
        ELFCOMPRESS_ZLIB => Compression::Zlib,
        ELFCOMPRESS_ZSTD => Compression::Zstd,
        _ => Compression::Other,
    };
    Some((by, form.ch_size, packed))
}

/// A row of a table of symbols.
#[derive(Clone, Copy, Debug)]
pub struct SymbolRow {
    /// The offset of the symbol's name in the section of names, in bytes.
    pub name: usize,
    /// The symbol's link-time address.
    pub value: u64,
    /// True if the symbol is defined in this file.
    pub is_defined: bool,
}

/// The rows of a section with symbols (gABI, `Elf64_Sym`).
pub fn symbol_rows(section: &[u8]) -> impl Iterator<Item = SymbolRow> {
    const ROW: usize = 24;
    section.chunks_exact(ROW).map(|row| SymbolRow {
        name: half(row, 0).unwrap_or_default() as usize,
        value: word(row, 8).unwrap_or_default(),
        is_defined: row[6..8] != [0, 0],
    })
}
