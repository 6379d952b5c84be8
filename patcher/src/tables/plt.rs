//! Names for the linkage stubs: a stub jumps through an entry of the global offset table, which
//! a relocation fills with the address of a symbol (System V ABI, x86-64 supplement, 5.2).

use goblin::elf::section_header::{SHT_DYNSYM, SHT_RELA, SHT_SYMTAB};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};

use crate::addr::Svma;
use crate::elf::{ElfFile, Section, c_str, half, section_bytes};

/// What the entries of an image's global offset table lead to, by the address of the entry.
pub(crate) struct Plt<'d> {
    entries: Vec<(Svma, &'d str)>,
}

impl<'d> Plt<'d> {
    pub(crate) fn new(file: &ElfFile<'d>) -> Self {
        let mut entries = Vec::new();
        for section in file
            .sections()
            .iter()
            .filter(|s| s.header.sh_type == SHT_RELA)
        {
            entries.extend(relocated(file, section).unwrap_or_default());
        }
        entries.sort_unstable();
        entries.dedup_by_key(|e| e.0);
        Self { entries }
    }

    /// What the stub at `at` jumps to.
    pub(crate) fn name(&self, file: &ElfFile<'d>, at: Svma) -> Option<&'d str> {
        const MOST: u64 = 16;
        if !file
            .sections()
            .iter()
            .any(|s| s.is_plt() && s.range().contains(&at))
        {
            return None;
        }
        let bytes = file.bytes(at, MOST)?;
        let mut insns = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).into_iter();
        let jump = insns.find(|i| i.mnemonic() != Mnemonic::Endbr64)?;
        if jump.mnemonic() != Mnemonic::Jmp || jump.op0_kind() != OpKind::Memory {
            return None;
        }
        let entry = Svma(
            jump.is_ip_rel_memory_operand()
                .then(|| jump.memory_displacement64())?,
        );
        self.imported(entry)
    }

    /// What the entry of the global offset table at `entry` leads to.
    pub(crate) fn imported(&self, entry: Svma) -> Option<&'d str> {
        let index = self.entries.binary_search_by_key(&entry, |e| e.0).ok()?;
        Some(self.entries[index].1)
    }
}

/// The entries of the global offset table that the relocations in `section` fill with symbols.
fn relocated<'d>(file: &ElfFile<'d>, section: &Section<'d>) -> Option<Vec<(Svma, &'d str)>> {
    const RELA: usize = 24;
    const SYMBOL: u64 = 24;
    const R_X86_64_GLOB_DAT: u64 = 6;
    const R_X86_64_JUMP_SLOT: u64 = 7;
    let is_table = |s: &&Section<'_>| matches!(s.header.sh_type, SHT_DYNSYM | SHT_SYMTAB);
    let symbols = file
        .sections()
        .get(section.header.sh_link as usize)
        .filter(is_table)?;
    let names = &file.sections().get(symbols.header.sh_link as usize)?.header;
    let bytes = |header| section_bytes(file.data(), header);
    let (rows, symbols) = (bytes(&section.header)?, bytes(&symbols.header)?);
    let names = bytes(names)?;
    let name = |row: &[u8]| {
        let info = u64::from_le_bytes(row.get(8..16)?.try_into().ok()?);
        if !matches!(info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
            return None;
        }
        let symbol = usize::try_from((info >> 32).checked_mul(SYMBOL)?).ok()?;
        let at = half(symbols, symbol)?;
        let name = c_str(names.get(at as usize..)?).filter(|n| !n.is_empty())?;
        Some((
            Svma(u64::from_le_bytes(row.get(..8)?.try_into().ok()?)),
            name,
        ))
    };
    Some(rows.chunks_exact(RELA).filter_map(name).collect())
}
