//! Relocations, which the loader applies. They are read through `PT_DYNAMIC`, so that section
//! headers are not needed.

use goblin::elf::dynamic::{DT_FINI, DT_INIT, DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ};
use goblin::elf::program_header::PT_DYNAMIC;

use super::bytes::le64;
use super::file::ElfFile;
use crate::addr::Svma;
use crate::isa::elf::is_relative;

/// A 64-bit word that the loader fills with an address of this module.
#[derive(Clone, Copy, Debug)]
pub struct RelocatedWord {
    /// The link-time address of the word.
    pub at: Svma,
    /// The link-time address that the word gets, to which the loader adds the bias.
    pub value: u64,
}

/// Tag of the address of the compact relocations (gABI, DT_RELR).
const DT_RELR: u64 = 36;
/// Tag of the size of the compact relocations, in bytes.
const DT_RELRSZ: u64 = 35;

/// The relocations of a file.
#[derive(Default)]
struct Relocations<'d> {
    /// `Elf64_Rela`, 24 bytes each: location, type and symbol, addend.
    rela: &'d [u8],
    /// The relocations of linkage stubs, in the same format.
    plt: &'d [u8],
    /// The compact form of relative relocations.
    relr: &'d [u8],
}

impl<'d> Relocations<'d> {
    fn of(file: &ElfFile<'d>) -> Self {
        let (mut rela, mut plt, mut relr) = ((0, 0), (0, 0), (0, 0));
        for entry in dynamic(file).unwrap_or_default().chunks_exact(16) {
            let value = le64(&entry[8..]);
            match le64(entry) {
                DT_RELA => rela.0 = value,
                DT_RELASZ => rela.1 = value,
                DT_JMPREL => plt.0 = value,
                DT_PLTRELSZ => plt.1 = value,
                DT_RELR => relr.0 = value,
                DT_RELRSZ => relr.1 = value,
                _ => {}
            }
        }
        let bytes = |(at, len)| file.bytes(Svma(at), len).unwrap_or_default();
        Self {
            rela: bytes(rela),
            plt: bytes(plt),
            relr: bytes(relr),
        }
    }

    /// The locations of the compact relocations. An even entry is an address. An odd entry is a
    /// bitmap of the 63 words after the last location.
    fn compact(&self) -> Vec<Svma> {
        let mut fields = Vec::new();
        let mut next = 0u64;
        for entry in self.relr.chunks_exact(8) {
            let entry = le64(entry);
            if entry & 1 == 0 {
                fields.push(Svma(entry));
                next = entry.wrapping_add(8);
            } else {
                let set = (0..63).filter(|bit| entry >> (bit + 1) & 1 == 1);
                fields.extend(set.map(|bit| Svma(next.wrapping_add(8 * bit))));
                next = next.wrapping_add(63 * 8);
            }
        }
        fields
    }
}

/// Every word with a relative relocation, in the order of the relocations. A word with a compact
/// relocation is left out if the file has no bytes for it.
pub fn relocated_words(file: &ElfFile<'_>) -> Vec<RelocatedWord> {
    let relocations = Relocations::of(file);
    let mut words = Vec::new();
    for entry in relocations.rela.chunks_exact(24) {
        let kind = le64(&entry[8..]) as u32;
        if is_relative(kind) {
            words.push(RelocatedWord {
                at: Svma(le64(entry)),
                value: le64(&entry[16..]),
            });
        }
    }
    let in_place = |at| {
        let value = le64(file.bytes(at, 8)?);
        Some(RelocatedWord { at, value })
    };
    words.extend(relocations.compact().into_iter().filter_map(in_place));
    words
}

/// The addresses of the words that overlap code and that the loader changes, sorted. An address may
/// occur several times.
pub fn text_fields(file: &ElfFile<'_>) -> Vec<Svma> {
    let relocations = Relocations::of(file);
    let tables = [relocations.rela, relocations.plt];
    let places = tables.into_iter().flat_map(|t| t.chunks_exact(24));
    let mut fields: Vec<Svma> = places
        .map(|entry| Svma(le64(entry)))
        .chain(relocations.compact())
        .filter(|&at| [at, at.plus(7)].into_iter().any(|at| file.is_code(at)))
        .collect();
    fields.sort_unstable();
    fields
}

/// The functions that the loader calls after loading the file and before unloading it: gABI,
/// Initialization and Termination Functions. Those in arrays are among the relocated words instead.
pub fn called_by_the_loader(file: &ElfFile<'_>) -> Vec<Svma> {
    let entries = dynamic(file).unwrap_or_default().chunks_exact(16);
    let called = entries.filter(|entry| matches!(le64(entry), DT_INIT | DT_FINI));
    called.map(|entry| Svma(le64(&entry[8..]))).collect()
}

fn dynamic<'d>(file: &ElfFile<'d>) -> Option<&'d [u8]> {
    let program = file.program(PT_DYNAMIC)?;
    file.bytes(Svma(program.p_vaddr), program.p_filesz)
}
