//! Numbers and texts in the bytes of a file.

use goblin::elf::program_header::ProgramHeader;
use goblin::elf::section_header::SectionHeader;

use crate::addr::FileOffset;

/// What the file holds of a segment.
pub fn segment_bytes<'d>(data: &'d [u8], segment: &ProgramHeader) -> Option<&'d [u8]> {
    file_range(data, FileOffset(segment.p_offset), segment.p_filesz)
}

/// What the file holds of a section that is not SHT_NOBITS.
pub fn section_bytes<'d>(data: &'d [u8], section: &SectionHeader) -> Option<&'d [u8]> {
    file_range(data, FileOffset(section.sh_offset), section.sh_size)
}

/// `len` bytes of the file from `offset`.
pub fn file_range(data: &[u8], offset: FileOffset, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset.0).ok()?;
    data.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

/// The 64-bit number at the start of `bytes`; 0 where they are too few.
pub fn le64(bytes: &[u8]) -> u64 {
    word(bytes, 0).unwrap_or(0)
}

/// The 64-bit number at `at`.
pub fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The 32-bit number at `at`.
pub fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The text up to the first zero byte.
pub fn c_str(bytes: &[u8]) -> Option<&str> {
    /// Longer names are not read: many symbols that name one huge text take no time to speak of.
    const LONGEST_TEXT: usize = 1 << 16;
    let bytes = bytes.get(..LONGEST_TEXT).unwrap_or(bytes);
    let len = bytes.iter().position(|&b| b == 0)?;
    std::str::from_utf8(bytes.get(..len)?).ok()
}
