//! Why bytes are no image.

use std::fmt;

/// Why bytes are no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// No ELF file.
    NotElf,
    /// An ELF file of another class or machine.
    NotX86_64 {
        /// Class: 1 for 32 bit, 2 for 64 bit.
        class: u8,
        /// `e_machine`.
        machine: u16,
    },
    /// An ELF file whose headers contradict its size or each other.
    Malformed {
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => write!(f, "not an ELF file"),
            Self::NotX86_64 { class, machine } => {
                let bits = if *class == 2 { 64 } else { 32 };
                write!(f, "not an x86-64 ELF file (ELF{bits}, machine {machine})")
            }
            Self::Malformed { what } => write!(f, "malformed ELF file: {what}"),
        }
    }
}

impl std::error::Error for ImageError {}
