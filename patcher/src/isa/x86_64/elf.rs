//! Processor-specific parts of ELF files: the machine, the relocation types, and the program
//! properties (psABI 4.4; Linux extensions, "Program Property").

use goblin::elf::reloc::{
    R_X86_64_32, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT,
    R_X86_64_PC32, R_X86_64_PC64, R_X86_64_RELATIVE,
};

use crate::isa::Fill;

/// The value of `e_machine`.
pub const MACHINE: u16 = goblin::elf::header::EM_X86_64;
/// The type of the property that lists features that all code of the file supports
/// (GNU_PROPERTY_X86_FEATURE_1_AND).
pub const FEATURES: u32 = 0xc000_0002;
/// The feature bit for user shadow stacks (GNU_PROPERTY_X86_FEATURE_1_SHSTK).
pub const SHADOW_STACK: u32 = 1 << 1;

/// The kind of value that the loader stores for a relocation of type `kind`.
pub fn fill(kind: u32) -> Fill {
    match kind {
        R_X86_64_RELATIVE => Fill::Relative,
        R_X86_64_IRELATIVE => Fill::Resolved,
        R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT | R_X86_64_64 => Fill::Symbol,
        _ => Fill::Other,
    }
}

/// The value that the linker stores at `place` for a relocation to `value`, and its size in bytes.
/// `None` for relocation types that debug information does not use.
pub fn linked_word(kind: u32, value: u64, place: u64) -> Option<(u64, usize)> {
    match kind {
        R_X86_64_64 => Some((value, 8)),
        R_X86_64_32 => Some((value, 4)),
        R_X86_64_PC64 => Some((value.wrapping_sub(place), 8)),
        R_X86_64_PC32 => Some((value.wrapping_sub(place), 4)),
        _ => None,
    }
}

/// True if the loader stores an address in the same file for a relocation of type `kind`.
pub fn is_relative(kind: u32) -> bool {
    matches!(kind, R_X86_64_RELATIVE | R_X86_64_IRELATIVE)
}

/// True if the loader stores a symbol's address in an entry of the global offset table for a
/// relocation of type `kind`.
pub fn is_of_offset_table(kind: u32) -> bool {
    matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
}
