//! What ELF files have of the processor: the machine, the kinds of relocations, and the features that files state (psABI 4.4; Linux extensions, "Program Property").

use goblin::elf::reloc::{
    R_X86_64_32, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT,
    R_X86_64_PC32, R_X86_64_PC64, R_X86_64_RELATIVE,
};

use crate::isa::Fill;

/// The machine that the header of a file names.
pub const MACHINE: u16 = goblin::elf::header::EM_X86_64;
/// The property of a file with the features that all of its code has (GNU_PROPERTY_X86_FEATURE_1_AND).
pub const FEATURES: u32 = 0xc000_0002;
/// The feature to run with a user shadow stack (GNU_PROPERTY_X86_FEATURE_1_SHSTK).
pub const SHADOW_STACK: u32 = 1 << 1;

/// What the loader fills a word of this kind with.
pub fn fill(kind: u32) -> Fill {
    match kind {
        R_X86_64_RELATIVE => Fill::Relative,
        R_X86_64_IRELATIVE => Fill::Resolved,
        R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT | R_X86_64_64 => Fill::Symbol,
        _ => Fill::Other,
    }
}

/// What the linker fills in at `place` for `value`, and the bytes of that; `None` for kinds that debug information
/// does without.
pub fn linked_word(kind: u32, value: u64, place: u64) -> Option<(u64, usize)> {
    match kind {
        R_X86_64_64 => Some((value, 8)),
        R_X86_64_32 => Some((value, 4)),
        R_X86_64_PC64 => Some((value.wrapping_sub(place), 8)),
        R_X86_64_PC32 => Some((value.wrapping_sub(place), 4)),
        _ => None,
    }
}

/// Does the loader fill the word with an address of the same file?
pub fn is_relative(kind: u32) -> bool {
    matches!(kind, R_X86_64_RELATIVE | R_X86_64_IRELATIVE)
}

/// Does the loader fill the word, an entry of the global offset table, with the address of a symbol?
pub fn is_of_offset_table(kind: u32) -> bool {
    matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
}
