//! Reasons why a file is not a valid image.

use std::fmt;

use crate::isa::NAME;
use crate::isa::elf::MACHINE;

/// The reason why a file is not a valid image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// Not an ELF file.
    NotElf,
    /// An ELF file of another class, byte order or machine.
    OtherMachine {
        /// The byte `EI_CLASS`: 1 for 32-bit, 2 for 64-bit.
        class: u8,
        /// The number of the machine, `e_machine`.
        machine: u16,
    },
    /// An ELF file whose headers contradict its size or each other.
    Malformed {
        /// The contradiction.
        what: String,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => write!(f, "not an ELF file"),
            Self::OtherMachine { class, machine } => {
                let bits = if *class == 2 { 64 } else { 32 };
                match machine_name(*machine) {
                    Some(name) => write!(f, "not an {NAME} ELF file: {name}, {bits} bits"),
                    None => write!(f, "not an {NAME} ELF file (ELF{bits}, machine {machine})"),
                }
            }
            Self::Malformed { what } => write!(f, "malformed ELF file: {what}"),
        }
    }
}

/// The name of the machine `e_machine` (include/uapi/linux/elf-em.h); `None` for machines without a
/// name here.
fn machine_name(machine: u16) -> Option<&'static str> {
    Some(match machine {
        2 | 43 => "SPARC",
        3 => "x86 (i386)",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "S/390",
        40 => "ARM",
        50 => "Itanium",
        62 => "x86-64",
        183 => "ARM (AArch64)",
        243 => "RISC-V",
        247 => "BPF",
        258 => "LoongArch",
        _ => return None,
    })
}

impl std::error::Error for ImageError {}

/// The error for a file that begins with `head`, if it is an ELF file of another class or machine;
/// otherwise `None`.
///
/// Numbers are read in the file's byte order (gABI, ELF Header: `EI_CLASS`, `EI_DATA`,
/// `e_machine`).
pub fn other_machine(head: &[u8; 20]) -> Option<ImageError> {
    const BIG_ENDIAN: u8 = 2;
    let (class, order, machine) = (head[4], head[5], [head[18], head[19]]);
    let machine = match order {
        BIG_ENDIAN => u16::from_be_bytes(machine),
        _ => u16::from_le_bytes(machine),
    };
    let is_other = head.starts_with(b"\x7fELF") && (class, machine) != (2, MACHINE);
    is_other.then_some(ImageError::OtherMachine { class, machine })
}
