//! `.eh_frame` through gimli: which code has frame descriptions, and what they say.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, CieOrFde, CommonInformationEntry, EhFrame,
    EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian, Pointer,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};

use crate::addr::Svma;
use crate::elf::{ElfFile, segment_bytes};
use crate::isa::dwarf;

type Reader<'d> = EndianSlice<'d, LittleEndian>;

/// A frame description entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fde {
    /// The code it covers.
    pub range: Range<Svma>,
    /// Where the language-specific data is.
    pub lsda: Option<Svma>,
}

/// Where the frame descriptions of an image are once it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// All of them.
    pub range: Range<Svma>,
    /// The first address that each covers and where it is, ordered by the first.
    pub entries: Vec<(Svma, Svma)>,
}

/// The canonical frame address at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfaAt {
    /// The stack pointer plus so many bytes.
    StackPointerPlus(i64),
    /// Found through another register or an expression.
    Other,
    /// Not described.
    Unknown,
}

#[derive(Clone, Copy)]
struct FdeEntry {
    start: u64,
    end: u64,
    lsda: u64,
    /// In the section; those of programs are far below 4 GiB.
    offset: u32,
    /// Describes the frame of a signal handler's caller: code that is returned to, never called.
    is_signal: bool,
}

/// The section `.eh_frame`.
struct Section<'d> {
    frames: EhFrame<Reader<'d>>,
    bases: BaseAddresses,
    range: Range<Svma>,
}

/// The frame descriptions of an image, ordered by address.
pub(crate) struct Unwind<'d> {
    section: Option<Section<'d>>,
    entries: Vec<FdeEntry>,
}

impl<'d> Unwind<'d> {
    pub(crate) fn new(file: &ElfFile<'d>) -> Self {
        let mut unwind = Self {
            section: None,
            entries: Vec::new(),
        };
        let index = Index::of(file);
        let by_name = file
            .section(".eh_frame")
            .filter(|(_, bytes)| !bytes.is_empty());
        // A program can do without section headers, but not without this segment.
        let by_segment = || {
            let at = index.as_ref()?.section;
            Some((at, file.bytes_from(at)?))
        };
        let Some((address, bytes)) = by_name.or_else(by_segment) else {
            return unwind;
        };
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address.0);
        let (mut cies, mut missing) = (Cies::default(), Vec::new());
        let mut entries = section.entries(&bases);
        // An entry that cannot be read ends the list: what follows cannot be found.
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let parsed = partial.parse(|section, bases, at| cies.get(section, bases, at));
            unwind
                .entries
                .extend(parsed.ok().and_then(|fde| FdeEntry::new(&fde)));
        }
        unwind.sort();
        if let Some(index) = index.filter(|i| i.count > unwind.entries.len()) {
            // Not all can be found one after the other.
            for (start, at) in index.table(address) {
                if unwind
                    .entries
                    .binary_search_by_key(&start, |e| e.start)
                    .is_ok()
                {
                    continue;
                }
                let get = |s: &EhFrame<_>, b: &BaseAddresses, at| cies.get(s, b, at);
                let parsed = section.fde_from_offset(&bases, EhFrameOffset(at), get);
                missing.extend(parsed.ok().and_then(|fde| FdeEntry::new(&fde)));
            }
            unwind.entries.append(&mut missing);
            unwind.sort();
        }
        unwind.entries.shrink_to_fit();
        unwind.section = Some(Section {
            frames: section,
            bases,
            range: address.range(bytes.len() as u64),
        });
        unwind
    }

    fn sort(&mut self) {
        self.entries.sort_by_key(|e| e.start);
        self.entries.dedup_by_key(|e| e.start);
    }

    fn find(&self, at: Svma) -> Option<&FdeEntry> {
        let after = self.entries.partition_point(|e| e.start <= at.0);
        self.entries
            .get(after.checked_sub(1)?)
            .filter(|e| at.0 < e.end)
    }

    /// Where the descriptions are; `None` where they are not loaded, or there are none.
    pub(crate) fn frames(&self, file: &ElfFile<'_>) -> Option<Frames> {
        let range = self.section.as_ref()?.range.clone();
        let segment = file.segment_at(range.start)?;
        if range.end > segment.file_end() {
            return None;
        }
        let place = |e: &FdeEntry| (Svma(e.start), range.start.plus(e.offset.into()));
        let entries = self.entries.iter().map(place).collect();
        Some(Frames { range, entries })
    }

    pub(crate) fn fde(&self, at: Svma) -> Option<Fde> {
        self.find(at).map(FdeEntry::fde)
    }

    /// What can be called and has a frame description, ordered by address.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<Svma>> + '_ {
        self.entries
            .iter()
            .filter(|e| !e.is_signal)
            .map(|e| Svma(e.start)..Svma(e.end))
    }

    /// The same with what can only be returned to.
    pub(crate) fn all_ranges(&self) -> impl Iterator<Item = Range<Svma>> + '_ {
        self.entries.iter().map(|e| Svma(e.start)..Svma(e.end))
    }

    pub(crate) fn cfa(&self, at: Svma) -> CfaAt {
        let cfa = |row: &UnwindTableRow<usize>| match row.cfa() {
            CfaRule::RegisterAndOffset {
                register: dwarf::STACK_POINTER,
                offset,
            } => CfaAt::StackPointerPlus(*offset),
            _ => CfaAt::Other,
        };
        self.at_row(at, cfa).unwrap_or(CfaAt::Unknown)
    }

    pub(crate) fn is_outermost(&self, at: Svma) -> bool {
        let is_undefined = |row: &UnwindTableRow<usize>| {
            matches!(
                row.register(dwarf::RETURN_ADDRESS),
                Some(RegisterRule::Undefined)
            )
        };
        self.at_row(at, is_undefined).unwrap_or(false)
    }

    /// For each description with a stack that moves within the body: the code range it covers, and
    /// its rows as made by `read`, each with the first address that it applies to.
    pub(crate) fn moving<R>(
        &self,
        read: impl Fn(&UnwindTableRow<usize>) -> R,
    ) -> impl Iterator<Item = (Range<Svma>, Vec<(Svma, R)>)> {
        let mut context = UnwindContext::new();
        let mut cies = Cies::default();
        let called = self.entries.iter().filter(|e| !e.is_signal);
        called.filter_map(move |entry| {
            let Section { frames, bases, .. } = self.section.as_ref()?;
            let offset = EhFrameOffset(entry.offset as usize);
            let get = |s: &EhFrame<_>, b: &BaseAddresses, at| cies.get(s, b, at);
            let fde = frames.fde_from_offset(bases, offset, get).ok()?;
            let mut instructions = fde.instructions(frames, bases);
            let instructions = std::iter::from_fn(|| instructions.next().ok()?);
            if !moves_in_body(instructions) {
                return None;
            }
            let mut table = fde.rows(frames, bases, &mut context).ok()?;
            let mut rows = Vec::new();
            while let Some(row) = table.next_row().ok()? {
                rows.push((Svma(row.start_address()), read(row)));
            }
            Some((Svma(entry.start)..Svma(entry.end), rows))
        })
    }

    /// What `read` makes of the row of the instruction `at`.
    pub(crate) fn at_row<R>(
        &self,
        at: Svma,
        read: impl Fn(&UnwindTableRow<usize>) -> R,
    ) -> Option<R> {
        thread_local! {
            // Ten kilobytes to set up, for an answer that takes a microsecond.
            static CONTEXT: RefCell<UnwindContext<usize>> = RefCell::new(UnwindContext::new());
        }
        let Section { frames, bases, .. } = self.section.as_ref()?;
        let offset = EhFrameOffset(self.find(at)?.offset as usize);
        let fde = frames
            .fde_from_offset(bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        CONTEXT.with_borrow_mut(|context| {
            let row = fde
                .unwind_info_for_address(frames, bases, context, at.0)
                .ok()?;
            Some(read(row))
        })
    }
}

/// True if the stack pointer moves in the body, apart from making and removing the frame: arguments
/// are pushed. Two pushed words without a saved register show this. So does a height above the
/// lowest one that is not the frame's.
fn moves_in_body(instructions: impl Iterator<Item = CallFrameInstruction<usize>>) -> bool {
    const WORD: u64 = 8;
    let mut heights = vec![WORD];
    let (mut frame, mut has_fallen) = (WORD, false);
    let (mut pushed, mut saved) = (0u32, 0u32);
    for instruction in instructions {
        let before = heights.last().copied().unwrap_or(WORD);
        let height = match instruction {
            CallFrameInstruction::DefCfaOffset { offset }
            | CallFrameInstruction::DefCfa { offset, .. } => offset,
            CallFrameInstruction::Offset { .. } => {
                saved += 1;
                continue;
            }
            CallFrameInstruction::RememberState => {
                heights.push(before);
                continue;
            }
            CallFrameInstruction::RestoreState => {
                heights.pop();
                continue;
            }
            _ => continue,
        };
        match height {
            _ if height < before => has_fallen = true,
            _ if has_fallen && height > before && height != frame => return true,
            _ if height > before => {
                pushed += u32::from(height == before + WORD);
                frame = frame.max(height);
            }
            _ => {}
        }
        heights.pop();
        heights.push(height);
    }
    pushed > saved + 1
}

impl FdeEntry {
    fn new(fde: &FrameDescriptionEntry<Reader<'_>>) -> Option<Self> {
        let start = fde.initial_address();
        let end = start.checked_add(fde.len()).filter(|&e| e > start)?;
        let lsda = fde.lsda().map_or(0, Pointer::pointer);
        let offset = u32::try_from(fde.offset()).ok()?;
        Some(Self {
            start,
            end,
            lsda,
            offset,
            is_signal: fde.is_signal_trampoline(),
        })
    }

    fn fde(&self) -> Fde {
        let lsda = (self.lsda != 0).then_some(Svma(self.lsda));
        Fde {
            range: Svma(self.start)..Svma(self.end),
            lsda,
        }
    }
}

/// The few common entries, read once.
#[derive(Default)]
struct Cies<'d>(HashMap<EhFrameOffset, CommonInformationEntry<Reader<'d>>>);

impl<'d> Cies<'d> {
    fn get(
        &mut self,
        section: &EhFrame<Reader<'d>>,
        bases: &BaseAddresses,
        at: EhFrameOffset,
    ) -> gimli::Result<CommonInformationEntry<Reader<'d>>> {
        if let Some(cie) = self.0.get(&at) {
            return Ok(cie.clone());
        }
        let cie = section.cie_from_offset(bases, at)?;
        self.0.insert(at, cie.clone());
        Ok(cie)
    }
}

/// `.eh_frame_hdr`: LSB 5 section 10.6.2.
struct Index<'d> {
    bytes: &'d [u8],
    bases: BaseAddresses,
    /// Where `.eh_frame` starts.
    section: Svma,
    /// How many descriptions it lists.
    count: usize,
}

impl<'d> Index<'d> {
    fn of(file: &ElfFile<'d>) -> Option<Self> {
        let program = file.frame_index()?;
        let bytes = segment_bytes(file.data(), program)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(program.p_vaddr);
        let header = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(section) = header.eh_frame_ptr() else {
            return None;
        };
        let count = header
            .table()
            .map_or(0, |table| table.iter(&bases).size_hint().0);
        Some(Self {
            bytes,
            section: Svma(section),
            count,
            bases,
        })
    }

    /// Where functions start, and where their descriptions are in the section at `section`.
    fn table(&self, section: Svma) -> Vec<(u64, usize)> {
        let header = EhFrameHdr::new(self.bytes, LittleEndian).parse(&self.bases, 8);
        let Ok(header) = header else {
            return Vec::new();
        };
        let Some(table) = header.table() else {
            return Vec::new();
        };
        let rows = table.iter(&self.bases).map_while(Result::ok);
        rows.filter_map(|(start, at)| {
            let at = at.pointer().checked_sub(section.0)?;
            Some((start.pointer(), usize::try_from(at).ok()?))
        })
        .collect()
    }
}
