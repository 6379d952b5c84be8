//! x86-64.

pub mod classes;
pub mod dwarf;

/// The machine in the head of a dump of generated code (EM_X86_64).
pub const MACHINE: u32 = 62;
