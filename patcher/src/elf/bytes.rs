//! Numbers and strings in the bytes of a file.

use goblin::elf::program_header::ProgramHeader;
use goblin::elf::section_header::SectionHeader;

use crate::addr::FileOffset;

/// The bytes of a segment that are in the file `data`. `None` if the segment extends beyond the
/// file.
pub fn segment_bytes<'d>(data: &'d [u8], segment: &ProgramHeader) -> Option<&'d [u8]> {
    file_range(data, FileOffset(segment.p_offset), segment.p_filesz)
}

/// The bytes of a section. `None` if the section extends beyond the file. The section must have
/// bytes in the file: a section of type SHT_NOBITS has none.
pub fn section_bytes<'d>(data: &'d [u8], section: &SectionHeader) -> Option<&'d [u8]> {
    file_range(data, FileOffset(section.sh_offset), section.sh_size)
}

/// `len` bytes of the file from `offset` on. `None` if they extend beyond the file.
pub fn file_range(data: &[u8], offset: FileOffset, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset.0).ok()?;
    data.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

/// The little-endian 64-bit number at the start of `bytes`; 0 if there are too few bytes.
pub fn le64(bytes: &[u8]) -> u64 {
    word(bytes, 0).unwrap_or(0)
}

/// The little-endian 64-bit number at offset `at`; `None` if `bytes` ends before its end.
pub fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The little-endian 32-bit number at offset `at`; `None` if `bytes` ends before its end.
pub fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The string up to the first zero byte. `None` if there is no zero byte in the first 64 KiB, or if
/// the string is not valid UTF-8.
pub fn c_str(bytes: &[u8]) -> Option<&str> {
    /// The maximum length of a string, in bytes. It bounds the work for a file whose many symbols
    /// share one huge name.
    const LONGEST_TEXT: usize = 1 << 16;
    let bytes = bytes.get(..LONGEST_TEXT).unwrap_or(bytes);
    let len = bytes.iter().position(|&b| b == 0)?;
    std::str::from_utf8(bytes.get(..len)?).ok()
}
