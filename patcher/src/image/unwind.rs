//! `.eh_frame` through gimli: which code has frame descriptions, and what they say.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Register,
    UnwindContext, UnwindSection,
};

use super::Image;
use crate::addr::Svma;

type Reader<'d> = EndianSlice<'d, LittleEndian>;

/// A frame description entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fde {
    /// The code it covers.
    pub range: Range<Svma>,
    /// Where the language-specific data is.
    pub lsda: Option<Svma>,
}

/// The canonical frame address at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfaAt {
    /// `cfa = rsp + n`, n in bytes.
    RspPlus(i64),
    /// Found through another register or an expression.
    Other,
    /// Not described.
    Unknown,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u64,
    end: u64,
    lsda: u64,
    offset: usize,
}

/// The frame descriptions of an image, ordered by address.
pub(crate) struct Unwind<'d> {
    section: Option<(EhFrame<Reader<'d>>, BaseAddresses)>,
    entries: Vec<Entry>,
}

impl<'d> Unwind<'d> {
    pub(super) fn new(image: &Image<'d>) -> Self {
        let mut unwind = Self { section: None, entries: Vec::new() };
        let Some((address, bytes)) = image.section(".eh_frame") else { return unwind };
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address.0);
        let mut cies = HashMap::new();
        let mut entries = section.entries(&bases);
        // An entry that cannot be read ends the list: what follows cannot be found.
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let parsed = partial.parse(|section, bases, offset| {
                if let Some(cie) = cies.get(&offset) {
                    return Ok::<_, gimli::Error>(Clone::clone(cie));
                }
                let cie = section.cie_from_offset(bases, offset)?;
                cies.insert(offset, cie.clone());
                Ok(cie)
            });
            let Ok(fde) = parsed else { continue };
            let start = fde.initial_address();
            let Some(end) = start.checked_add(fde.len()).filter(|&e| e > start) else { continue };
            let lsda = fde.lsda().map_or(0, gimli::Pointer::pointer);
            unwind.entries.push(Entry { start, end, lsda, offset: fde.offset() });
        }
        unwind.entries.sort_by_key(|e| e.start);
        unwind.entries.dedup_by_key(|e| e.start);
        unwind.section = Some((section, bases));
        unwind
    }

    fn find(&self, at: Svma) -> Option<&Entry> {
        let after = self.entries.partition_point(|e| e.start <= at.0);
        self.entries.get(after.checked_sub(1)?).filter(|e| at.0 < e.end)
    }

    pub(super) fn fde(&self, at: Svma) -> Option<Fde> {
        self.find(at).map(Entry::fde)
    }

    /// Every frame description, ordered by address.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.entries.iter().map(|e| e.start..e.end)
    }

    pub(super) fn cfa(&self, at: Svma) -> CfaAt {
        self.row_cfa(at).unwrap_or(CfaAt::Unknown)
    }

    fn row_cfa(&self, at: Svma) -> Option<CfaAt> {
        const RSP: Register = Register(7);
        let (section, bases) = self.section.as_ref()?;
        let offset = EhFrameOffset(self.find(at)?.offset);
        let fde = section.fde_from_offset(bases, offset, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(section, bases, &mut context, at.0).ok()?;
        Some(match row.cfa() {
            CfaRule::RegisterAndOffset { register: RSP, offset } => CfaAt::RspPlus(*offset),
            _ => CfaAt::Other,
        })
    }
}

impl Entry {
    fn fde(&self) -> Fde {
        let lsda = (self.lsda != 0).then_some(Svma(self.lsda));
        Fde { range: Svma(self.start)..Svma(self.end), lsda }
    }
}
