//! Files whose program headers are moved to a segment of their own after all others, as BOLT does.

use std::fs;
use std::path::Path;

/// Bytes of a program header (ELF gABI, `Elf64_Phdr`) and offsets of its fields.
const HEADER: usize = 56;
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const MEMORY_SIZE: usize = 40;

const LOAD: u32 = 1;
const PHDR: u32 = 6;
const PAGE: u64 = 4096;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn kind(header: &[u8]) -> u32 {
    u32::from_le_bytes(header[..4].try_into().expect("4 bytes"))
}

/// Where the headers stand: offset, address, physical address, size in the file, size in memory.
fn place(header: &mut [u8], offset: u64, address: u64, len: u64) {
    let fields = [offset, address, address, len, len];
    for (field, value) in header[OFFSET..].chunks_exact_mut(8).zip(fields) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes the ELF file `from` to `to` with its program headers elsewhere, and zeroes where they were.
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
    // Those that are loaded are ordered by address.
    let last = headers.iter().rposition(loaded).expect("segments");
    headers.insert(last + 1, own);
    file.resize(offset as usize, 0);
    file.extend(headers.concat());
    file[TABLE..TABLE + 8].copy_from_slice(&offset.to_le_bytes());
    file[COUNT] += 1;
    fs::copy(from, to).unwrap_or_else(|e| panic!("write {}: {e}", to.display()));
    fs::write(to, file).unwrap_or_else(|e| panic!("write {}: {e}", to.display()));
}
