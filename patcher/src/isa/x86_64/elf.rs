//! What ELF files have of the processor: the machine, the kinds of relocations, and the features that files state (psABI 4.4; Linux extensions, "Program Property").

use goblin::elf::reloc::{
    R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE,
};

/// The machine that the header of a file names.
pub const MACHINE: u16 = goblin::elf::header::EM_X86_64;
/// The property of a file with the features that all of its code has (GNU_PROPERTY_X86_FEATURE_1_AND).
pub const FEATURES: u32 = 0xc000_0002;
/// The feature to run with a user shadow stack (GNU_PROPERTY_X86_FEATURE_1_SHSTK).
pub const SHADOW_STACK: u32 = 1 << 1;

/// Does the loader fill the word with an address of the same file?
pub fn is_relative(kind: u32) -> bool {
    matches!(kind, R_X86_64_RELATIVE | R_X86_64_IRELATIVE)
}

/// Does the loader fill the word, an entry of the global offset table, with the address of a symbol?
pub fn is_of_offset_table(kind: u32) -> bool {
    matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
}
