//! Executable mappings, and the unwind tables of the code in them.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{BUILD_BYTES, TABLE_OF_ENTRIES, TableHead, TableRow, build_of};

use super::cfi::{self, Fde, Region};
use crate::os::maps::Mapping;
use crate::os::{foreign, shared};

/// An executable mapping.
#[derive(Clone, Copy)]
pub struct Range {
    /// First address of the mapping.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Device and inode of the mapped file; zeroes if it is anonymous.
    pub file: (u32, u64),
    /// Offset of `start` in the mapped file, in bytes.
    offset: u64,
    /// Time-stamp counter when the mapping was first seen; 0 if it was there when the maps were
    /// first read.
    since: u64,
    /// The unwind tables of the code in the mapping; `None` if it has none.
    pub tables: Option<Tables>,
    /// The hash of the file's build ([`build`]); 0 if unknown.
    pub build: u64,
}

impl Range {
    /// Creates the range of a mapping first seen at `since`.
    pub const fn new(mapping: &Mapping, since: u64) -> Self {
        Self {
            start: mapping.start,
            end: mapping.end,
            file: (mapping.device, mapping.inode),
            offset: mapping.offset,
            since,
            tables: None,
            build: 0,
        }
    }

    /// True if the range maps a file. Otherwise the program generates the code.
    pub const fn is_of_file(&self) -> bool {
        self.file.1 != 0
    }

    /// True if the same part of the same file is mapped at the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |range: &Self| (range.start, range.end, range.file, range.offset);
        place(self) == place(other)
    }

    /// This range with the date and the build of `before`, if that is the same mapping.
    #[must_use]
    pub fn known_as(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.is_same(&self)) {
            self.since = before.since;
            self.build = before.build;
        }
        self
    }

    /// True if a published table describes this code, and not its predecessor. A table for
    /// generated code also holds for code that takes its place.
    pub fn is_meant(&self, head: &TableHead) -> bool {
        !self.is_of_file() || head.seen_tsc.load(Ordering::Relaxed) >= self.since
    }
}

/// The date of a range that was just found. It is set once all ranges have been read.
pub const NEW: u64 = u64::MAX;

/// Maximum number of executable mappings in a list. Code in further ones has no unwind tables.
const MAX_RANGES: usize = 2048;

/// Executable mappings, sorted by address.
pub struct Ranges {
    all: [Range; MAX_RANGES],
    len: usize,
}

impl Ranges {
    /// Creates an empty list.
    pub const fn new() -> Self {
        const NONE: Range = Range {
            start: 0,
            end: 0,
            file: (0, 0),
            offset: 0,
            since: 0,
            tables: None,
            build: 0,
        };
        Self {
            all: [NONE; MAX_RANGES],
            len: 0,
        }
    }

    /// The range that contains `address`, or `None`.
    pub fn find(&self, address: u64) -> Option<&Range> {
        let known = self.known();
        let after = known.partition_point(|r| r.start <= address);
        let range = known.get(after.checked_sub(1)?)?;
        (address < range.end).then_some(range)
    }

    /// All ranges.
    pub fn known(&self) -> &[Range] {
        self.all.get(..self.len).unwrap_or_default()
    }

    /// Removes all ranges.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Sets the date of the ranges dated [`NEW`] to `now`, a time-stamp counter.
    pub fn date(&mut self, now: u64) {
        let known = self.all.iter_mut().take(self.len);
        known
            .filter(|range| range.since == NEW)
            .for_each(|range| range.since = now);
    }

    /// Adds the range with the next higher address. Drops it if there is no room.
    pub fn push(&mut self, range: Range) {
        if let Some(place) = self.all.get_mut(self.len) {
            *place = range;
            self.len += 1;
        }
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Self::new()
    }
}

/// Unwind tables of a module.
#[derive(Clone, Copy)]
pub struct Tables {
    index: Index,
    /// The memory of `.eh_frame`, and of `.eh_frame_hdr` if there is one.
    pub region: Region,
}

/// The index of the unwind entries.
#[derive(Clone, Copy)]
enum Index {
    /// The table of the `.eh_frame_hdr` at this address.
    Header(u64),
    /// A table made by the command.
    Published(&'static [TableRow]),
}

impl Tables {
    /// The unwind entry that covers `pc`; `None` if there is none.
    pub fn find(&self, pc: u64) -> Option<Fde> {
        match self.index {
            Index::Header(header) => cfi::find_fde(self.region, header, pc),
            Index::Published(rows) => cfi::find_fde_in(self.region, rows, pc),
        }
    }

    /// Address of `.eh_frame_hdr` in the process, if there is one.
    pub fn header(&self) -> Option<u64> {
        match self.index {
            Index::Header(header) => Some(header),
            Index::Published(_) => None,
        }
    }

    /// The tables of unwind entries that the command has published for a range; `None` if there are
    /// none.
    pub fn published(range: &Range) -> Option<Self> {
        let all = shared::tables().filter_map(|(head, rows)| {
            let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let is_for = of(&head.start) <= range.start && range.start < of(&head.end);
            if of(&head.kind) != TABLE_OF_ENTRIES || !is_for || !range.is_meant(head) {
                return None;
            }
            // SAFETY: the command has found these entries in a loaded segment of the module.
            let region = unsafe { Region::new(of(&head.frames), of(&head.frames_end)) };
            Some(Self {
                index: Index::Published(rows),
                region,
            })
        });
        // The latest table is the best.
        all.last()
    }
}

/// The start of a mapped file, read in one piece: its ELF header and usually all program headers.
struct Head {
    mapping: Mapping,
    read: [u8; Self::MAX_HEAD_BYTES],
    len: usize,
}

impl Head {
    const MAX_HEAD_BYTES: usize = 2048;

    /// Reads the start of the mapping.
    ///
    /// # Safety
    /// The mapping is readable, or was a moment before.
    unsafe fn read(mapping: Mapping) -> Self {
        let mut read = [0; Self::MAX_HEAD_BYTES];
        let room = mapping.end.saturating_sub(mapping.start);
        let wanted = read.len().min(room as usize);
        // SAFETY: guaranteed by the caller.
        let len = read
            .get_mut(..wanted)
            .map_or(0, |to| unsafe { foreign::read(mapping.start, to) });
        Self { mapping, read, len }
    }

    fn start(&self) -> u64 {
        self.mapping.start
    }

    /// The `N` bytes at an offset in the file. `None` if they are beyond the mapping or cannot be
    /// read.
    fn bytes<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let end = offset.checked_add(N as u64)?;
        if end <= self.len as u64 {
            return self
                .read
                .get(offset as usize..end as usize)?
                .try_into()
                .ok();
        }
        let at = self.mapping.start.checked_add(offset)?;
        if at.checked_add(N as u64)? > self.mapping.end {
            return None;
        }
        // SAFETY: inside the mapping, which is readable.
        unsafe { foreign::read_array(at) }
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        self.bytes(offset).map(u64::from_le_bytes)
    }
}

/// The hash of the build of a file, see [`abi::segment::build_of`]; 0 if its start cannot be read.
///
/// # Safety
/// `head` is mapped and readable, or was a moment before.
#[inline(never)]
pub unsafe fn build(head: Mapping) -> u64 {
    let mut read = [0; BUILD_BYTES];
    // SAFETY: guaranteed by the caller.
    let len = unsafe { foreign::read(head.start, &mut read) };
    match len {
        BUILD_BYTES => build_of(&read),
        _ => 0,
    }
}

/// Offsets in an ELF-64 program header (System V ABI, chapter 5).
mod program_header {
    pub const LEN: u64 = 56;
    pub const KIND: u64 = 0;
    pub const OFFSET: u64 = 8;
    pub const ADDRESS: u64 = 16;
    pub const FILE_LEN: u64 = 32;
    pub const LOAD: u32 = 1;
    pub const EH_FRAME: u32 = 0x6474_e550;
}

/// The program headers of a loaded ELF image.
struct ProgramHeaders {
    head: Head,
    /// Offset in the file of the first program header, in bytes.
    table: u64,
    /// The number of program headers.
    count: u64,
}

impl ProgramHeaders {
    /// The program headers of the image that begins with `head`. `None` if `head` does not begin
    /// with an ELF header.
    ///
    /// # Safety
    /// The mapping is readable, or was a moment before.
    unsafe fn of(head: Mapping) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        let head = unsafe { Head::read(head) };
        if head.bytes(0)? != *b"\x7fELF\x02" {
            return None;
        }
        Some(Self {
            table: head.u64(32)?,
            count: u64::from(u16::from_le_bytes(head.bytes(56)?)),
            head,
        })
    }

    /// The offset in the file of the field at byte `field` of program header `index`.
    fn place(&self, index: u64, field: u64) -> Option<u64> {
        self.table.checked_add(index * program_header::LEN + field)
    }

    fn kind(&self, index: u64) -> Option<u32> {
        let place = self.place(index, program_header::KIND)?;
        self.head.bytes(place).map(u32::from_le_bytes)
    }

    fn field(&self, index: u64, field: u64) -> Option<u64> {
        self.head.u64(self.place(index, field)?)
    }

    /// The load bias: an address in the process minus the address in the file, from `head = bias +
    /// address - offset` of the first loaded segment. `None` if there is none.
    fn bias(&self) -> Option<u64> {
        let mut all = 0..self.count;
        let first = all.find(|&index| self.kind(index) == Some(program_header::LOAD))?;
        let address = self.field(first, program_header::ADDRESS)?;
        let offset = self.field(first, program_header::OFFSET)?;
        Some(self.head.start().wrapping_sub(address.wrapping_sub(offset)))
    }
}

/// True if `mapping`, of the same file as `head`, is a segment of the ELF image whose header is at
/// the start of `head`. The kernel maps whole pages, so addresses and offsets are compared without
/// the bits inside the page: `mapping.start = bias + page(address)`, `mapping.offset =
/// page(offset)`.
///
/// # Safety
/// `head` is mapped and readable, or was a moment before.
#[inline(never)]
pub unsafe fn is_segment(head: Mapping, mapping: &Mapping) -> bool {
    const PAGE: u64 = !(abi::PAGE - 1);
    if (head.device, head.inode) != (mapping.device, mapping.inode) || head.offset != 0 {
        return false;
    }
    // SAFETY: guaranteed by the caller.
    let Some(headers) = (unsafe { ProgramHeaders::of(head) }) else {
        return false;
    };
    let Some(bias) = headers.bias() else {
        return false;
    };
    let is_it = |index| {
        let address = headers.field(index, program_header::ADDRESS)?;
        let offset = headers.field(index, program_header::OFFSET)?;
        let is_there = mapping.start == bias.wrapping_add(address & PAGE);
        Some(
            headers.kind(index)? == program_header::LOAD
                && is_there
                && offset & PAGE == mapping.offset,
        )
    };
    (0..headers.count).any(|index| is_it(index) == Some(true))
}

/// Finds the unwind tables of the ELF image whose header is at the start of `head`. `None` if
/// `head` is no ELF header, or the image has no tables.
///
/// # Safety
/// `head` is mapped and readable, and if it is an ELF header its loaded segments are.
pub unsafe fn tables(head: Mapping) -> Option<Tables> {
    // SAFETY: guaranteed by the caller.
    let headers = unsafe { ProgramHeaders::of(head)? };
    let bias = headers.bias()?;
    let mut all = 0..headers.count;
    let eh_frame = all.find(|&index| headers.kind(index) == Some(program_header::EH_FRAME))?;
    let header = headers.field(eh_frame, program_header::ADDRESS)?;
    for load in 0..headers.count {
        let start = headers.field(load, program_header::ADDRESS)?;
        let len = headers.field(load, program_header::FILE_LEN)?;
        let is_loaded = headers.kind(load)? == program_header::LOAD;
        if is_loaded && start <= header && header < start.checked_add(len)? {
            let start = start.wrapping_add(bias);
            // SAFETY: a loadable segment of an image that is loaded, as the caller guarantees.
            let region = unsafe { Region::new(start, start.checked_add(len)?) };
            return Some(Tables {
                index: Index::Header(header.wrapping_add(bias)),
                region,
            });
        }
    }
    None
}
