//! Moves the program headers of a file to their own segment after all others, as BOLT does.

use std::fs;
use std::path::Path;

/// The size in bytes of a program header (ELF gABI, `Elf64_Phdr`). The next three constants are the
/// offsets of its fields.
const HEADER: usize = 56;
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const MEMORY_SIZE: usize = 40;

/// The types of program headers, `PT_LOAD` and `PT_PHDR`.
const LOAD: u32 = 1;
const PHDR: u32 = 6;
const PAGE: u64 = 4096;

/// The little-endian 64-bit number at the offset `at`.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The type (`p_type`) of a program header.
fn kind(header: &[u8]) -> u32 {
    u32::from_le_bytes(header[..4].try_into().expect("4 bytes"))
}

/// Sets a header's offset, virtual and physical address, file size and memory size.
fn place(header: &mut [u8], offset: u64, address: u64, len: u64) {
    let fields = [offset, address, address, len, len];
    for (field, value) in header[OFFSET..].chunks_exact_mut(8).zip(fields) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes the ELF file `from` to `to` with its program headers moved, and zeroes in their old
/// place.
///
/// # Panics
/// If a file cannot be read or written, or has no loaded segment.
pub fn move_headers(from: &Path, to: &Path) {
    const TABLE: usize = 0x20;
    const COUNT: usize = 0x38;
    const READ: u32 = 4;
    let mut file = fs::read(from).unwrap_or_else(|e| panic!("read {}: {e}", from.display()));
    let table = word(&file, TABLE) as usize;
    let count = usize::from(file[COUNT]);
    let old = table..table + count * HEADER;
    let mut headers: Vec<Vec<u8>> = file[old.clone()]
        .chunks_exact(HEADER)
        .map(<[u8]>::to_vec)
        .collect();
    file[old].fill(0);
    let loaded = |h: &Vec<u8>| kind(h) == LOAD;
    let ends = headers.iter().filter(|h| loaded(h));
    let end = ends.map(|h| word(h, ADDRESS) + word(h, MEMORY_SIZE)).max();
    let address = end.expect("segments").next_multiple_of(PAGE);
    let offset = (file.len() as u64).next_multiple_of(PAGE);
    let len = ((count + 1) * HEADER) as u64;
    let mut own = vec![0; HEADER];
    own[..4].copy_from_slice(&LOAD.to_le_bytes());
    own[4..8].copy_from_slice(&READ.to_le_bytes());
    own[HEADER - 8..].copy_from_slice(&PAGE.to_le_bytes());
    place(&mut own, offset, address, len);
    for header in headers.iter_mut().filter(|h| kind(h) == PHDR) {
        place(header, offset, address, len);
    }
    // Loaded segments are ordered by address.
    let last = headers.iter().rposition(loaded).expect("segments");
    headers.insert(last + 1, own);
    file.resize(offset as usize, 0);
    file.extend(headers.concat());
    file[TABLE..TABLE + 8].copy_from_slice(&offset.to_le_bytes());
    file[COUNT] += 1;
    fs::copy(from, to).unwrap_or_else(|e| panic!("write {}: {e}", to.display()));
    fs::write(to, file).unwrap_or_else(|e| panic!("write {}: {e}", to.display()));
}
