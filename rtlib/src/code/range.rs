//! Executable mappings, and the unwind tables of the code in them.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{BUILD_BYTES, TABLE_OF_ENTRIES, TableHead, TableRow, build_of};

use super::cfi::{self, Fde, Region};
use crate::os::maps::Mapping;
use crate::os::{foreign, shared};

/// An executable mapping.
#[derive(Clone, Copy)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Device and inode of what is mapped; zeros where that is no file.
    pub file: (u32, u64),
    /// Offset of `start` in it, bytes.
    offset: u64,
    /// The time-stamp counter when it was first seen; 0 for what was there when the maps were first read.
    since: u64,
    /// Where its unwind tables are, if it has any.
    pub tables: Option<Tables>,
    /// What tells the build of the file; 0 where that is not known.
    pub build: u64,
}

impl Range {
    /// Of a mapping that is first seen now.
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

    /// Whether it is of a file; else the program makes the code itself.
    pub const fn is_of_file(&self) -> bool {
        self.file.1 != 0
    }

    /// Whether the same is mapped at the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |range: &Self| (range.start, range.end, range.file, range.offset);
        place(self) == place(other)
    }

    /// It, as of when it was first seen where that is as `before`.
    #[must_use]
    pub fn known_as(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.is_same(&self)) {
            self.since = before.since;
            self.build = before.build;
        }
        self
    }

    /// Whether a table that the command has published is about this code, and not about what was there before. What it
    /// says of code that a program makes itself holds for what takes its place, too.
    pub fn is_meant(&self, head: &TableHead) -> bool {
        !self.is_of_file() || head.seen_tsc.load(Ordering::Relaxed) >= self.since
    }
}

/// When a range was first seen that has just been: it is dated when all have been read.
pub const NEW: u64 = u64::MAX;

/// Most executable mappings that are told apart; code in further ones has no unwind tables.
const MOST: usize = 2048;

/// Executable mappings by address, as the kernel lists them.
pub struct Ranges {
    all: [Range; MOST],
    len: usize,
}

impl Ranges {
    /// None yet.
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
            all: [NONE; MOST],
            len: 0,
        }
    }

    /// The one that holds an address.
    pub fn find(&self, address: u64) -> Option<&Range> {
        let known = self.known();
        let after = known.partition_point(|r| r.start <= address);
        let range = known.get(after.checked_sub(1)?)?;
        (address < range.end).then_some(range)
    }

    /// All of them.
    pub fn known(&self) -> &[Range] {
        self.all.get(..self.len).unwrap_or_default()
    }

    /// Forgets all.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Dates those that are new.
    pub fn date(&mut self, now: u64) {
        let known = self.all.iter_mut().take(self.len);
        known
            .filter(|range| range.since == NEW)
            .for_each(|range| range.since = now);
    }

    /// Adds the next one, as long as there is room.
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
    /// What holds `.eh_frame`, and `.eh_frame_hdr` if there is one.
    pub region: Region,
}

/// How the entry of an address is found.
#[derive(Clone, Copy)]
enum Index {
    /// By the table of the `.eh_frame_hdr` at this address.
    Header(u64),
    /// By one that the command has made.
    Published(&'static [TableRow]),
}

impl Tables {
    /// The entry that covers `pc`.
    pub fn find(&self, pc: u64) -> Option<Fde> {
        match self.index {
            Index::Header(header) => cfi::find_fde(self.region, header, pc),
            Index::Published(rows) => cfi::find_fde_in(self.region, rows, pc),
        }
    }

    /// Address of `.eh_frame_hdr`, where there is one.
    pub fn header(&self) -> Option<u64> {
        match self.index {
            Index::Header(header) => Some(header),
            Index::Published(_) => None,
        }
    }

    /// Those that the command has published for a range.
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
        // The latest is the best.
        all.last()
    }
}

/// The beginning of a mapped file, read at once: its ELF header and, as a rule, all program headers.
struct Head {
    mapping: Mapping,
    read: [u8; Self::MOST],
    len: usize,
}

impl Head {
    const MOST: usize = 2048;

    /// # Safety
    /// The mapping can be read, or has been a moment before.
    unsafe fn read(mapping: Mapping) -> Self {
        let mut read = [0; Self::MOST];
        let room = mapping.end.saturating_sub(mapping.start);
        let wanted = read.len().min(room as usize);
        // SAFETY: the caller's promise.
        let len = read
            .get_mut(..wanted)
            .map_or(0, |to| unsafe { foreign::read(mapping.start, to) });
        Self { mapping, read, len }
    }

    fn start(&self) -> u64 {
        self.mapping.start
    }

    /// So many bytes at an offset of the file.
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
        // SAFETY: inside the mapping, which can be read.
        unsafe { foreign::read_array(at) }
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        self.bytes(offset).map(u64::from_le_bytes)
    }
}

/// What tells the build of a file whose beginning is mapped so: see [`abi::segment::build_of`]; 0 where it cannot be read.
///
/// # Safety
/// `head` is mapped and readable, or has been a moment before.
#[inline(never)]
pub unsafe fn build(head: Mapping) -> u64 {
    let mut read = [0; BUILD_BYTES];
    // SAFETY: the caller's promise.
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
    table: u64,
    count: u64,
}

impl ProgramHeaders {
    /// `None` if the mapping does not begin with an ELF header.
    ///
    /// # Safety
    /// The mapping is readable, or was a moment before.
    unsafe fn of(head: Mapping) -> Option<Self> {
        // SAFETY: the caller's promise.
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

    /// Address in the process minus address in the file: `head = bias + address - offset` of the
    /// first loaded segment.
    fn bias(&self) -> Option<u64> {
        let mut all = 0..self.count;
        let first = all.find(|&index| self.kind(index) == Some(program_header::LOAD))?;
        let address = self.field(first, program_header::ADDRESS)?;
        let offset = self.field(first, program_header::OFFSET)?;
        Some(self.head.start().wrapping_sub(address.wrapping_sub(offset)))
    }
}

/// True if `mapping`, of the same file as `head`, is a segment of the ELF image whose header is at
/// the start of `head`. The kernel maps whole pages, so both ends of the equation lose the bits
/// inside the page: `mapping.start = bias + page(address)`, `mapping.offset = page(offset)`.
///
/// # Safety
/// `head` is mapped and readable, or was a moment before.
#[inline(never)]
pub unsafe fn is_segment(head: Mapping, mapping: &Mapping) -> bool {
    const PAGE: u64 = !(abi::PAGE - 1);
    if (head.device, head.inode) != (mapping.device, mapping.inode) || head.offset != 0 {
        return false;
    }
    // SAFETY: the caller's promise.
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

/// Finds the unwind tables of the ELF image whose header is at the start of `head`.
///
/// # Safety
/// `head` is mapped and readable, and if it is an ELF header its loaded segments are.
pub unsafe fn tables(head: Mapping) -> Option<Tables> {
    // SAFETY: the caller's promise.
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
            // SAFETY: a loadable segment of an image that is loaded, by the caller's promise.
            let region = unsafe { Region::new(start, start.checked_add(len)?) };
            return Some(Tables {
                index: Index::Header(header.wrapping_add(bias)),
                region,
            });
        }
    }
    None
}
