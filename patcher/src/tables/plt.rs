//! Names for linkage stubs. A stub jumps through an entry of the global offset table. A relocation
//! fills the entry with the address of a symbol (System V ABI, processor supplements, "Procedure
//! Linkage Table").

use crate::addr::Svma;
use crate::elf::{ElfFile, Section, c_str, half, section_bytes};
use crate::isa::decode;
use crate::isa::elf::is_of_offset_table;

/// The symbols in the entries of an image's global offset table, by the entries' addresses.
pub(crate) struct Plt<'d> {
    /// The addresses of entries, ascending, each with the symbol's name.
    entries: Vec<(Svma, &'d str)>,
}

impl<'d> Plt<'d> {
    /// Reads the relocation sections of `file`. Those that cannot be read are left out.
    pub(crate) fn new(file: &ElfFile<'d>) -> Self {
        let mut entries = Vec::new();
        for section in file.sections().iter().filter(|s| s.holds_relocations()) {
            entries.extend(relocated(file, section).unwrap_or_default());
        }
        entries.sort_unstable();
        entries.dedup_by_key(|e| e.0);
        Self { entries }
    }

    /// The name of the symbol that the stub at `at` jumps to; `None` if there is no stub or no
    /// symbol.
    pub(crate) fn name(&self, file: &ElfFile<'d>, at: Svma) -> Option<&'d str> {
        const LONGEST_STUB: u64 = 16;
        if !file
            .sections()
            .iter()
            .any(|s| s.is_plt() && s.range().contains(&at))
        {
            return None;
        }
        let bytes = file.bytes(at, LONGEST_STUB)?;
        let mut insns = decode(bytes, at);
        let jump = insns.find(|insn| !insn.is_landing_marker())?;
        let entry = jump.named_word().filter(|_| jump.is_indirect_jump())?;
        self.imported(Svma(entry))
    }

    /// The name of the symbol whose address the loader stores in the entry of the global offset
    /// table at `entry`, if any.
    pub(crate) fn imported(&self, entry: Svma) -> Option<&'d str> {
        let index = self.entries.binary_search_by_key(&entry, |e| e.0).ok()?;
        Some(self.entries[index].1)
    }
}

/// The entries of the global offset table that the relocations in `section` fill with symbols, with
/// the symbols' names. `None` if the section cannot be read.
fn relocated<'d>(file: &ElfFile<'d>, section: &Section<'d>) -> Option<Vec<(Svma, &'d str)>> {
    const RELA: usize = 24;
    const SYMBOL: u64 = 24;
    let symbols = file
        .sections()
        .get(section.header.sh_link as usize)
        .filter(|s| s.holds_symbols())?;
    let names = &file.sections().get(symbols.header.sh_link as usize)?.header;
    let bytes = |header| section_bytes(file.data(), header);
    let (rows, symbols) = (bytes(&section.header)?, bytes(&symbols.header)?);
    let names = bytes(names)?;
    let name = |row: &[u8]| {
        let info = u64::from_le_bytes(row.get(8..16)?.try_into().ok()?);
        if !is_of_offset_table(info as u32) {
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
