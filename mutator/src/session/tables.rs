//! Unwind tables for modules whose file has none that can be searched: static programs are linked
//! without `.eh_frame_hdr`. The runtime knows nothing of sections, so the command makes one.

use std::sync::atomic::Ordering::{Acquire, Release};

use abi::segment::AREA_TABLES;
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use goblin::elf::Elf;
use goblin::elf::program_header::PT_GNU_EH_FRAME;
use patcher::{Avma, Svma};

use super::{Session, SessionError};
use crate::images;
use crate::process::modules::Module;

impl Session {
    /// Publishes tables for those of these modules that need one and have none yet.
    pub(super) fn publish_tables(&mut self, modules: &[Module]) -> Result<(), SessionError> {
        for module in modules {
            let key = (module.code_range().start.0, module.path.clone());
            if self.document.tables.contains(&key) || has_index(module) {
                continue;
            }
            let Some(table) = table(module) else {
                continue;
            };
            self.publish(&table)?;
            self.document.tables.push(key);
        }
        Ok(())
    }

    /// Appends words to the area of tables; nothing where it is full: paths end there, and say so.
    fn publish(&self, words: &[u64]) -> Result<(), SessionError> {
        let used = &self.segment.header().tables_used;
        let at = used.load(Acquire);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if self.segment.write_bytes(AREA_TABLES, at, &bytes)? {
            used.store(at + bytes.len() as u64, Release);
        }
        Ok(())
    }
}

/// Whether the runtime can search the module's own tables, or there is no telling.
fn has_index(module: &Module) -> bool {
    let Ok(bytes) = module.open() else {
        return true;
    };
    let parse = |bytes| {
        let header = Elf::parse_header(bytes).ok()?;
        let elf = Elf::lazy_parse(header).ok()?;
        let at = header.e_phoff as usize;
        let context = goblin::container::Ctx::new(
            elf.header.container().ok()?,
            elf.header.endianness().ok()?,
        );
        goblin::elf::ProgramHeader::parse(bytes, at, header.e_phnum.into(), context).ok()
    };
    parse(bytes.bytes()).is_none_or(|headers| headers.iter().any(|h| h.p_type == PT_GNU_EH_FRAME))
}

/// The module's table: head and rows as the segment has them.
fn table(module: &Module) -> Option<Vec<u64>> {
    let image = &images::of_module(module).ok()?.image;
    let bias = module.bias(image)?;
    let (start, data) = image.section(".eh_frame")?;
    let bases = BaseAddresses::default().set_eh_frame(start.0);
    let frames = EhFrame::new(data, LittleEndian);
    let mut entries = frames.entries(&bases);
    let mut rows: Vec<(Avma, Avma)> = Vec::new();
    // What is malformed ends the list, as it would end the search of an unwinder.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            break;
        };
        let at = start.plus(fde.offset() as u64);
        rows.push((bias.to_avma(Svma(fde.initial_address())), bias.to_avma(at)));
    }
    rows.sort_unstable();
    let code = module.code_range();
    let frames = bias.to_avma(start);
    let frames_end = frames.plus(data.len() as u64);
    let head = [code.start, code.end, frames, frames_end].map(|at| at.0);
    let pairs = rows.iter().flat_map(|row| [row.0.0, row.1.0]);
    let words = head.into_iter().chain([rows.len() as u64]).chain(pairs);
    (!rows.is_empty()).then(|| words.collect())
}
