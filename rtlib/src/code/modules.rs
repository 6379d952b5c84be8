//! Executable memory of the process and the unwind tables that describe it.

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{AREA_MODULES, MODULE_PATH, ModuleEntry, TABLE_OF_ENTRIES, TableRow};

use super::cfi::{self, Fde, Region};
use crate::arch::clock;
use crate::os::lock::Lock;
use crate::os::maps::{self, Mapping};
use crate::os::{foreign, shared, sys};

/// Executable memory and its unwind tables.
pub static MODULES: Modules = Modules::new();

/// Executable mappings that are told apart; code in further ones has no unwind tables.
const RANGES: usize = 2048;

/// An executable mapping.
#[derive(Clone, Copy)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Where its unwind tables are, if it has any.
    pub tables: Option<Tables>,
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

    /// Those that the command has published for the code at `address`.
    fn published(address: u64) -> Option<Self> {
        shared::tables().find_map(|(head, rows)| {
            let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let is_for = of(&head.start) <= address && address < of(&head.end);
            if of(&head.kind) != TABLE_OF_ENTRIES || !is_for {
                return None;
            }
            // SAFETY: the command has found these entries in a loaded segment of the module.
            let region = unsafe { Region::new(of(&head.frames), of(&head.frames_end)) };
            Some(Self {
                index: Index::Published(rows),
                region,
            })
        })
    }
}

/// Ticks of the time-stamp counter, some 20 ms.
pub const A_WHILE: u64 = 1 << 26;

struct List {
    ranges: [Range; RANGES],
    len: usize,
    /// Bytes of published tables at that time.
    tables: u64,
    /// The same when the maps were last read.
    parsed: u64,
    /// Whether all could be read the last time, and when that was, by the time-stamp counter.
    is_whole: bool,
    read_at: u64,
    #[cfg(test)]
    times_read: u64,
}

/// The executable mappings, as far as they have been seen.
pub struct Modules {
    lock: Lock,
    list: UnsafeCell<List>,
}

// SAFETY: `list` is touched only between `lock` and `unlock`.
unsafe impl Sync for Modules {}

impl Modules {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        const NONE: Range = Range {
            start: 0,
            end: 0,
            tables: None,
        };
        Self {
            lock: Lock::new(),
            list: UnsafeCell::new(List {
                ranges: [NONE; RANGES],
                len: 0,
                tables: 0,
                parsed: 0,
                is_whole: false,
                read_at: 0,
                #[cfg(test)]
                times_read: 0,
            }),
        }
    }

    /// The executable mapping that holds `address`. The maps are read again where none is known:
    /// a library may have been loaded since.
    ///
    /// Runs with signals blocked, so that the lock's holder cannot be interrupted by a taker.
    pub fn find(&self, address: u64) -> Option<Range> {
        self.with(|list| {
            let tables = shared::tables_used();
            if list.tables == tables
                && let Some(range) = list.find(address)
            {
                return Some(range);
            }
            list.tables = tables;
            list.refresh();
            list.find(address)
        })
    }

    /// The same among those seen so far.
    pub fn known(&self, address: u64) -> Option<Range> {
        self.with(|list| list.find(address))
    }

    /// Reads the maps again if they were last read some time ago: what was there then may have been unloaded.
    pub fn read_sometimes(&self) {
        self.with(|list| {
            if clock::now().wrapping_sub(list.read_at) > A_WHILE {
                list.refresh();
            }
        });
    }

    /// Whether the maps could be read the last time.
    pub fn are_whole(&self) -> bool {
        self.with(|list| list.is_whole)
    }

    /// How often the maps have been read.
    #[cfg(test)]
    pub fn times_read(&self) -> u64 {
        self.with(|list| list.times_read)
    }

    fn with<R>(&self, work: impl FnOnce(&mut List) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.list.get() });
        self.lock.unlock();
        result
    }
}

impl Default for Modules {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    fn find(&self, address: u64) -> Option<Range> {
        // Ordered by address, as the kernel lists them.
        let known = self.ranges.get(..self.len)?;
        let after = known.partition_point(|r| r.start <= address);
        let range = known.get(after.checked_sub(1)?)?;
        (address < range.end).then_some(*range)
    }

    fn refresh(&mut self) {
        let published = shared::tables_used();
        if !sys::may_call() && self.is_whole && self.parsed == published {
            return;
        }
        self.parsed = published;
        #[cfg(test)]
        {
            self.times_read += 1;
        }
        let mut is_begun = false;
        // The mapping at offset 0 of the file last seen: the file's ELF header, if it is one.
        let mut head: Option<Mapping> = None;
        let read = maps::for_each(|mapping, path| {
            if !is_begun {
                // Where the maps cannot be read, what was known stays.
                is_begun = true;
                self.len = 0;
            }
            let is_file = path.first() == Some(&b'/') || path == b"[vdso]";
            if is_file && mapping.offset == 0 && mapping.read {
                head = Some(mapping);
            }
            // What cannot be read, like vsyscall, is nobody's code here.
            if !mapping.execute || !mapping.read {
                return true;
            }
            let own_head = head.filter(|h| is_file && h.inode == mapping.inode);
            // SAFETY: the head is a mapping of this process that may be read.
            let tables = own_head
                .and_then(|h| unsafe { tables(h) })
                .or_else(|| Tables::published(mapping.start));
            if let Some(slot) = self.ranges.get_mut(self.len) {
                *slot = Range {
                    start: mapping.start,
                    end: mapping.end,
                    tables,
                };
                self.len += 1;
            }
            if is_file && shared::is_mapped() {
                publish(mapping, path);
            }
            true
        });
        self.is_whole = read.is_some();
        self.read_at = clock::now();
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

/// Finds the unwind tables of the ELF image whose header is at the start of `head`.
///
/// # Safety
/// `head` is mapped and readable, and if it is an ELF header its loaded segments are.
unsafe fn tables(head: Mapping) -> Option<Tables> {
    const LOAD: u32 = 1;
    const EH_FRAME: u32 = 0x6474_e550;
    const HEADER_LEN: u64 = 56;
    // SAFETY: the caller's promise.
    let head = unsafe { Head::read(head) };
    if head.bytes(0)? != *b"\x7fELF\x02" {
        return None;
    }
    let table = head.u64(32)?;
    let count = u64::from(u16::from_le_bytes(head.bytes(56)?));
    let place = |index: u64, offset: u64| table.checked_add(index * HEADER_LEN + offset);
    let kind_of = |index| Some(u32::from_le_bytes(head.bytes(place(index, 0)?)?));
    let field = |index, offset| head.u64(place(index, offset)?);
    let mut bias = None;
    for index in 0..count {
        let kind = kind_of(index)?;
        if kind == LOAD && bias.is_none() {
            let (offset, address) = (field(index, 8)?, field(index, 16)?);
            bias = Some(head.start().wrapping_sub(address.wrapping_sub(offset)));
        }
        if kind != EH_FRAME {
            continue;
        }
        let header = field(index, 16)?;
        for load in 0..count {
            let start = field(load, 16)?;
            let len = field(load, 32)?;
            if kind_of(load)? == LOAD && start <= header && header < start.checked_add(len)? {
                let start = start.wrapping_add(bias?);
                // SAFETY: a loadable segment of an image that is loaded, by the caller's promise.
                let region = unsafe { Region::new(start, start.checked_add(len)?) };
                return Some(Tables {
                    index: Index::Header(header.wrapping_add(bias?)),
                    region,
                });
            }
        }
    }
    None
}

/// Writes a mapping into the segment, for the command to symbolize addresses by, unless it stands
/// there.
fn publish(mapping: Mapping, path: &[u8]) {
    let used = &shared::header().modules_used;
    let entries = 0..used.load(Ordering::Relaxed) as u32;
    let known = entries.map(entry).any(|entry| {
        entry.start.load(Ordering::Relaxed) == mapping.start
            && entry.end.load(Ordering::Relaxed) == mapping.end
            && entry.offset.load(Ordering::Relaxed) == mapping.offset
            && entry.inode.load(Ordering::Relaxed) == mapping.inode
            && entry.device.load(Ordering::Relaxed) == mapping.device
            && is_path(&entry.path, entry.path_len.load(Ordering::Relaxed), path)
    });
    if known || path.len() > MODULE_PATH {
        return;
    }
    let stride = size_of::<ModuleEntry>() as u64;
    let Some(index) = shared::take(AREA_MODULES, used, stride, 0, |_| Some(())) else {
        return;
    };
    let entry = entry(index);
    entry.start.store(mapping.start, Ordering::Relaxed);
    entry.end.store(mapping.end, Ordering::Relaxed);
    entry.offset.store(mapping.offset, Ordering::Relaxed);
    entry.device.store(mapping.device, Ordering::Relaxed);
    entry.inode.store(mapping.inode, Ordering::Relaxed);
    entry.seen_tsc.store(clock::now(), Ordering::Relaxed);
    for (word, bytes) in entry.path.iter().zip(path.chunks(8)) {
        word.store(packed(bytes), Ordering::Relaxed);
    }
    entry.path_len.store(path.len() as u32, Ordering::Release);
}

/// Module entry `index` of the segment.
fn entry(index: u32) -> &'static ModuleEntry {
    // SAFETY: one that is in use.
    unsafe { shared::item(AREA_MODULES, index.into(), size_of::<ModuleEntry>() as u64) }
}

fn is_path(words: &[AtomicU64], len: u32, path: &[u8]) -> bool {
    len as usize == path.len()
        && words
            .iter()
            .zip(path.chunks(8))
            .all(|(word, bytes)| word.load(Ordering::Relaxed) == packed(bytes))
}

/// Up to eight bytes as a little-endian word.
fn packed(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}
