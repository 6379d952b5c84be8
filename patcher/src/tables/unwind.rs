//! The frame descriptions in `.eh_frame`, read with gimli.

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
    /// The code that the entry covers.
    pub range: Range<Svma>,
    /// The address of the language-specific data; `None` if the function has none.
    pub lsda: Option<Svma>,
}

/// The link-time addresses of an image's loaded frame descriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// The whole section.
    pub range: Range<Svma>,
    /// For each description, the first address that it covers and the description's own address.
    /// Ordered by the former.
    pub entries: Vec<(Svma, Svma)>,
}

/// The canonical frame address at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfaAt {
    /// The stack pointer plus this many bytes.
    StackPointerPlus(i64),
    /// The canonical frame address is relative to another register, or an expression.
    Other,
    /// No frame description covers the instruction.
    Unknown,
}

/// The parts of a frame description that are kept in memory.
#[derive(Clone, Copy)]
struct FdeEntry {
    start: u64,
    end: u64,
    /// The address of the language-specific data; 0 if there is none.
    lsda: u64,
    /// The description's offset in the section in bytes, which is far below 4 GiB in real programs.
    offset: u32,
    /// True for the frame of a signal handler's caller: this code is only returned to, never
    /// called.
    is_signal: bool,
}

/// The section `.eh_frame`.
struct Section<'d> {
    frames: EhFrame<Reader<'d>>,
    bases: BaseAddresses,
    /// The link-time addresses of the section.
    range: Range<Svma>,
}

/// The frame descriptions of an image, ordered by address.
pub(crate) struct Unwind<'d> {
    /// The section that contains the descriptions; `None` if there is none.
    section: Option<Section<'d>>,
    entries: Vec<FdeEntry>,
}

impl<'d> Unwind<'d> {
    /// Reads the frame descriptions of `file`. Those that cannot be read are left out.
    pub(crate) fn new(file: &ElfFile<'d>) -> Self {
        let mut unwind = Self {
            section: None,
            entries: Vec::new(),
        };
        let index = Index::of(file);
        let by_name = file
            .section(".eh_frame")
            .filter(|(_, bytes)| !bytes.is_empty());
        // A program can lack section headers, but not this segment.
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
        // An entry that cannot be read ends the list, because the next cannot be located.
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
            // Some entries cannot be reached sequentially.
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

    /// The link-time addresses of the descriptions. `None` if they are not loaded, or if there are
    /// none.
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

    /// The frame description that covers `at`; `None` if none does.
    pub(crate) fn fde(&self, at: Svma) -> Option<Fde> {
        self.find(at).map(FdeEntry::fde)
    }

    /// The code with a frame description, except code that is only returned to; ordered by address.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<Svma>> + '_ {
        self.entries
            .iter()
            .filter(|e| !e.is_signal)
            .map(|e| Svma(e.start)..Svma(e.end))
    }

    /// All code with a frame description, ordered by address.
    pub(crate) fn all_ranges(&self) -> impl Iterator<Item = Range<Svma>> + '_ {
        self.entries.iter().map(|e| Svma(e.start)..Svma(e.end))
    }

    /// The canonical frame address at the instruction `at`.
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

    /// True if the row for the instruction at `at` states that there is no return address. False if
    /// there is no row.
    pub(crate) fn is_outermost(&self, at: Svma) -> bool {
        let is_undefined = |row: &UnwindTableRow<usize>| {
            matches!(
                row.register(dwarf::RETURN_ADDRESS),
                Some(RegisterRule::Undefined)
            )
        };
        self.at_row(at, is_undefined).unwrap_or(false)
    }

    /// The code range and the rows of each description whose stack pointer moves within the body.
    ///
    /// `read` converts each row. The address with it is the first that the row applies to. A
    /// description that cannot be read is left out.
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

    /// Applies `read` to the row for the instruction at `at`, and returns its result. `None` if
    /// there is no such row.
    pub(crate) fn at_row<R>(
        &self,
        at: Svma,
        read: impl Fn(&UnwindTableRow<usize>) -> R,
    ) -> Option<R> {
        thread_local! {
            // Its setup writes ten kilobytes, but a query takes only a microsecond.
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

/// The common information entries, which are few, each read once.
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
    /// The link-time address of `.eh_frame`.
    section: Svma,
    /// The number of descriptions that the index lists.
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

    /// The start addresses of functions, with the offsets of their descriptions in the section at
    /// `section`.
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
