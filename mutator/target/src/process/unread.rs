//! The program headers and unwind tables of a module whose file cannot be opened, read from the
//! memory of its process. The process controls this memory, so its contents are untrusted.

use patcher::elf::Programs;
use patcher::{Bias, Svma};

use super::modules::{Module, bias_by};
use ipath_base::files::FileBytes;

/// Larger tables are not read, in bytes.
const MAX_TABLE_BYTES: u64 = 64 << 20;
/// Bytes of the search table before its rows, with the encodings that linkers use.
const HEAD: usize = 12;
/// Bytes of a row: a function's start and its entry, both relative to the table.
const ROW: usize = 8;
/// The version, and the encodings of the address of the entries, the number of rows, and the rows:
/// `DW_EH_PE_pcrel | sdata4`, `udata4` and `DW_EH_PE_datarel | sdata4`.
const LAYOUT: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// The unwind tables of a module, as read from the memory of its process.
pub struct UnwindTables {
    /// The address and bytes of the search table (`.eh_frame_hdr`).
    pub index: (Svma, FileBytes),
    /// The address and bytes of the entries (`.eh_frame`), up to the end of their segment.
    pub entries: (Svma, FileBytes),
}

impl Module {
    /// [`Module::bias`] by the program headers in the process's memory. `None` if they cannot be
    /// read or do not match the module's first executable mapping.
    pub fn bias_in_memory(&self) -> Option<Bias> {
        let first = self.code.first()?;
        let programs = self.programs_in_memory()?;
        let mut code = programs.segments().filter(|segment| segment.execute);
        code.find_map(|s| bias_by(&s, first.range.start, first.offset))
    }

    /// The program headers at the start of the module. `None` if they cannot be read.
    fn programs_in_memory(&self) -> Option<Programs> {
        let memory = self.process().open_memory().ok()?;
        let head = memory.read_vec(self.range.start, abi::PAGE as usize).ok()?;
        Programs::parse(&head)
    }

    /// The unwind tables at this bias. `None` if there are none of the usual layout.
    pub fn unwind_tables_in_memory(&self, bias: Bias) -> Option<UnwindTables> {
        let programs = self.programs_in_memory()?;
        let memory = self.process().open_memory().ok()?;
        let read = |from: u64, to: u64| {
            let len = to.checked_sub(from).filter(|&len| len <= MAX_TABLE_BYTES)?;
            let at = bias.to_avma(Svma(from));
            let is_own = self.range.contains(&at) && at.0.checked_add(len)? <= self.range.end.0;
            is_own.then(|| memory.read_vec(at, len as usize).ok())?
        };
        let index = programs.frame_index()?;
        let table = read(index.start, index.end)?;
        let offset = i32::from_le_bytes(*table.get(4..)?.first_chunk()?);
        let entries = (index.start + 4).checked_add_signed(offset.into())?;
        let mut segments = programs.segments();
        let segment = segments.find(|segment| segment.range.contains(&Svma(entries)))?;
        let tables = UnwindTables {
            entries: (
                Svma(entries),
                FileBytes::of_bytes(read(entries, segment.range.end.0)?),
            ),
            index: (Svma(index.start), FileBytes::of_bytes(table)),
        };
        tables
            .index
            .1
            .bytes()
            .starts_with(&LAYOUT)
            .then_some(tables)
    }
}

impl UnwindTables {
    /// The start of the last function that does not start after `at`. `None` if there is none.
    pub fn start_before(&self, at: Svma) -> Option<Svma> {
        let (base, table) = &self.index;
        let (rows, _) = table.bytes().get(HEAD..)?.as_chunks::<ROW>();
        let start = |row: &[u8; ROW]| {
            let [a, b, c, d, ..] = *row;
            let offset = i32::from_le_bytes([a, b, c, d]);
            base.0.wrapping_add_signed(offset.into())
        };
        let after = rows.partition_point(|row| start(row) <= at.0);
        Some(Svma(start(rows.get(after.checked_sub(1)?)?)))
    }
}
