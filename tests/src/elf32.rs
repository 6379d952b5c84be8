//! A 32-bit program, written as bytes because the 32-bit compiler is rarely installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// `pause()` by `int 0x80` in a loop: mov eax, 29; int 0x80; jmp to the start.
const CODE: [u8; 9] = [0xb8, 0x1d, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
const BASE: u32 = 0x0804_8000;
const HEADERS: u32 = 52 + 32;

/// Writes a static i386 program that sleeps until a signal ends it.
pub fn write(path: &Path) {
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|v| file.extend(v.to_le_bytes()));
    };
    let word = |file: &mut Vec<u8>, values: &[u32]| {
        values.iter().for_each(|v| file.extend(v.to_le_bytes()));
    };
    half(&mut file, &[2, 3]); // ET_EXEC, EM_386
    word(&mut file, &[1, BASE + HEADERS, 52, 0, 0]); // version, entry, phoff, shoff, flags
    half(&mut file, &[52, 32, 1, 0, 0, 0]); // sizes and numbers of headers
    let size = HEADERS + CODE.len() as u32;
    word(&mut file, &[1, 0, BASE, BASE, size, size, 5, 0x1000]); // PT_LOAD, r-x
    file.extend(CODE);
    fs::write(path, file).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod of an own file");
}
