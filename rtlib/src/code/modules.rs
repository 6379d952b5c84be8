//! Executable memory of the process and the unwind tables that describe it.

use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{
    AREA_MODULES, MODULE_PATH, ModuleEntry, TABLE_OF_CONVENTIONS, TABLE_OF_REGISTERED,
    TABLE_OF_RULES, TableHead, TableRow,
};
use unwind::rule;

use super::range::{self, NEW, Range, Ranges, Tables};
use super::rules::{Age, RULES};
use super::successors::Change;
use super::{epoch, registered, rows};
use crate::arch::clock;
use crate::os::hash;
use crate::os::lock::Lock;
use crate::os::maps::{self, Mapping};
use crate::os::{shared, sys};

/// Executable memory and its unwind tables.
pub static MODULES: Modules = Modules::new();

/// About 20 ms in ticks of the time-stamp counter.
pub const A_WHILE: u64 = 1 << 26;

/// The longest interval between two reads of the maps for addresses without code, about a second.
const LONGEST_WHILE: u64 = A_WHILE << 6;

/// Capacity of the cache of pages without code.
const NOWHERE: usize = 64;

/// The number of times that the maps are read for pages without code, at any cost. Code is not
/// executable while it is being written, but may soon be.
const FREE: u32 = 32;

/// After [`FREE`] reads, reading the maps for pages without code takes at most 1 / `PART` of the
/// time.
const PART: u64 = 8;

struct List {
    /// The current ranges, and those before the last read of the maps.
    ranges: [Ranges; 2],
    /// The index of the current ranges in `ranges`.
    turn: usize,
    /// Pages that held no code when the maps were last read, as a hash table; 0 in free buckets.
    nowhere: [u64; NOWHERE],
    /// The ticks for which a page counts as one without code. They grow with each read in vain
    /// after the first [`FREE`] reads.
    patience: u64,
    /// The number of reads of the maps for pages without code that found no change.
    in_vain: u32,
    /// Bytes of published tables included in `ranges`.
    tables: u64,
    /// Bytes of published tables when the maps were last read.
    parsed: u64,
    /// True if the last read of the maps was complete.
    is_whole: bool,
    /// The time-stamp counter of the last read of the maps.
    read_at: u64,
    /// The time-stamp counter at which the command read the maps that it last published.
    looked_at: u64,
    /// True if a Java virtual machine has been seen.
    has_java: bool,
    #[cfg(test)]
    times_read: u64,
}

/// The known executable mappings.
pub struct Modules {
    lock: Lock,
    list: UnsafeCell<List>,
}

// SAFETY: `list` is touched only between `lock` and `unlock`.
unsafe impl Sync for Modules {}

impl Modules {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            list: UnsafeCell::new(List {
                ranges: [const { Ranges::new() }; 2],
                turn: 0,
                nowhere: [0; NOWHERE],
                patience: 0,
                in_vain: 0,
                tables: 0,
                parsed: 0,
                is_whole: false,
                read_at: 0,
                looked_at: 0,
                has_java: false,
                #[cfg(test)]
                times_read: 0,
            }),
        }
    }

    /// The executable mapping that contains `address`. If none is known, the maps are read again,
    /// because a library may have been loaded. `None` if the address is in no executable mapping.
    ///
    /// Runs with signals blocked, so that the lock's holder cannot be interrupted by a taker.
    pub fn find(&self, address: u64) -> Option<Range> {
        self.with(|list| list.known(address).or_else(|| list.find_anew(address)))
    }

    /// The executable mapping that contains `address`, as [`Modules::find`]; `None` if none is
    /// known. If the page of `address` had no code at the last read, the maps are only read again
    /// after some time. Reading them then costs a small part of the run time.
    pub fn find_code(&self, address: u64) -> Option<Range> {
        self.with(|list| {
            list.known(address).or_else(|| {
                if list.is_nowhere(address) && !list.is_older(list.patience) {
                    return None;
                }
                let found = list.find_anew(address);
                if found.is_none() {
                    list.note_nowhere(address);
                }
                found
            })
        })
    }

    /// True if addresses without code are unlikely to become code.
    pub fn is_settled(&self) -> bool {
        self.with(|list| list.patience >= LONGEST_WHILE || !sys::may_call())
    }

    /// Reads the maps again, because code may have been mapped or unmapped. Without system calls,
    /// only if the command has published tables since the last read.
    pub fn refresh(&self) {
        self.with(List::refresh);
    }

    /// The known executable mapping that contains `address`, or `None`. Does not read the maps.
    pub fn known(&self, address: u64) -> Option<Range> {
        self.with(|list| list.find(address))
    }

    /// Reads the maps again if they were last read more than [`A_WHILE`] ago, because code may have
    /// been unmapped.
    pub fn read_sometimes(&self) {
        self.with(|list| {
            if list.is_older(A_WHILE) {
                list.refresh();
            }
        });
    }

    /// True if a Java virtual machine has been seen. Its interpreter pushes return addresses that
    /// follow no call. So nothing can be concluded from return addresses in the code that it
    /// generates.
    pub fn have_java(&self) -> bool {
        self.with(|list| list.has_java)
    }

    /// True if the maps could be read to the end the last time.
    pub fn are_whole(&self) -> bool {
        self.with(|list| list.is_whole)
    }

    /// The number of reads of the maps.
    #[cfg(test)]
    pub fn times_read(&self) -> u64 {
        self.with(|list| list.times_read)
    }

    /// The result of `work`, called under the lock.
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
    /// The current range that contains an address; `None` if there is none.
    fn find(&self, address: u64) -> Option<Range> {
        self.ranges.get(self.turn)?.find(address).copied()
    }

    /// The known range that contains an address. `None` if there is none, or if tables have been
    /// published that may change ranges. Tables of rules do not change ranges.
    fn known(&mut self, address: u64) -> Option<Range> {
        let used = shared::tables_used();
        let is_of_rules = |(head, _): (&TableHead, &[TableRow])| {
            [TABLE_OF_RULES, TABLE_OF_CONVENTIONS, TABLE_OF_REGISTERED]
                .contains(&head.kind.load(Ordering::Relaxed))
        };
        if self.tables != used && shared::tables_from(self.tables).all(is_of_rules) {
            self.tables = used;
        }
        (self.tables == shared::tables_used()).then(|| self.find(address))?
    }

    /// Reads the maps again, and returns the range that contains the address; `None` if none does.
    fn find_anew(&mut self, address: u64) -> Option<Range> {
        self.tables = shared::tables_used();
        self.refresh();
        self.find(address)
    }

    /// True if the maps were last read more than `than` ticks ago.
    fn is_older(&self, than: u64) -> bool {
        clock::now().wrapping_sub(self.read_at) > than
    }

    /// True if the page of an address is known to have held no code at the last read of the maps.
    fn is_nowhere(&self, address: u64) -> bool {
        let page = address & !(abi::PAGE - 1);
        page != 0 && self.nowhere[nowhere_bucket(page)] == page
    }

    /// Notes that the page of an address holds no code, in place of another page.
    fn note_nowhere(&mut self, address: u64) {
        let page = address & !(abi::PAGE - 1);
        self.nowhere[nowhere_bucket(page)] = page;
    }

    /// Reads the maps as [`Modules::refresh`] does. If they cannot be read and no range is known,
    /// takes the maps that the command has published.
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
        let began = clock::now();
        // Without system calls, new code was mapped after the command read the maps before.
        let since = match (self.is_whole, sys::may_call()) {
            (true, true) => NEW,
            (true, false) => self.looked_at,
            (false, _) => 0,
        };
        let is_unknown = self.now().known().is_empty();
        let mut is_begun = false;
        // The mapping of the ELF header of the last seen file, if it is an ELF file.
        let mut head: Option<Mapping> = None;
        let mut take = |mapping: Mapping, path: &[u8]| {
            if !is_begun {
                // If the maps cannot be read, the known ranges stay.
                is_begun = true;
                self.turn ^= 1;
                self.now().clear();
            }
            let is_file = path.first() == Some(&b'/') || path == b"[vdso]";
            if is_file && mapping.offset == 0 && mapping.read {
                // A segment that begins in the file's first page maps that page again (lld, mold).
                // SAFETY: the head is a readable mapping of this process.
                let is_of = |head| unsafe { range::is_segment(head, &mapping) };
                head = head.filter(|&head| is_of(head)).or(Some(mapping));
            }
            self.has_java |= path.ends_with(b"/libjvm.so");
            // Unreadable memory such as vsyscall is not treated as code.
            if !mapping.execute || !mapping.read {
                return true;
            }
            let before = self.before().find(mapping.start);
            let mut range = Range::new(&mapping, since).known_as(before);
            let is_known = before.is_some_and(|before| before.is_same(&range));
            let own_head = head.filter(|h| is_file && h.inode == mapping.inode);
            // SAFETY: the head is a mapping of this process that may be read.
            let own = own_head.and_then(|h| unsafe { range::tables(h) });
            range.tables = own.or_else(|| Tables::published(&range));
            if let Some(head) = own_head.filter(|_| range.build == 0) {
                // SAFETY: as above.
                range.build = unsafe { range::build(head) };
            }
            let build = range.build;
            self.now().push(range);
            if is_file && shared::is_mapped() {
                let module = publish(mapping, path, build);
                let (start, end) = (mapping.start, mapping.end);
                let change = module.and_then(|module| Change::of(start, end, module));
                if let Some(change) = change.filter(|_| !is_known) {
                    RULES.rename(|pc| change.keys(pc));
                    change.settle();
                }
            }
            true
        };
        let read = maps::for_each(&mut take);
        if read.is_none() && is_unknown {
            // There is no free descriptor, or no /proc.
            let _ = maps::for_each_published(&mut take);
        }
        self.is_whole = read.is_some();
        self.read_at = clock::now();
        self.looked_at = shared::maps_seen();
        let read_at = self.read_at;
        self.now().date(read_at);
        if self.is_whole && is_begun {
            let took = self.read_at.saturating_sub(began);
            self.compare(took * PART);
        }
    }

    /// The current ranges.
    fn now(&mut self) -> &mut Ranges {
        &mut self.ranges[self.turn & 1]
    }

    /// The ranges before the last read of the maps.
    fn before(&self) -> &Ranges {
        &self.ranges[!self.turn & 1]
    }

    /// Compares the ranges with those before the last read. If they differ, forgets rows, rules and
    /// tables of code that has changed, and begins another epoch if any rule was forgotten. If they
    /// are equal, the read was in vain: `patience` is then the least number of ticks for
    /// [`List::patience`].
    fn compare(&mut self, patience: u64) {
        let [now, before] = [self.turn, self.turn ^ 1].map(|turn| &self.ranges[turn & 1]);
        let pairs = now.known().iter().zip(before.known());
        let is_same = now.known().len() == before.known().len()
            && pairs.into_iter().all(|(range, old)| range.is_same(old));
        if is_same {
            self.in_vain += 1;
            if self.in_vain > FREE {
                self.patience = (self.patience * 2).max(patience).min(LONGEST_WHILE);
            }
            return;
        }
        let age = |pc: u64, word: u64| {
            let address = pc.wrapping_sub(1);
            match (now.find(address), before.find(address)) {
                (Some(range), Some(old)) if range.is_same(old) => Age::New,
                (None, None) => Age::New,
                (Some(_), None) if rule::kind(word) != rule::STOP => Age::New,
                (Some(range), _) | (None, Some(range)) if range.is_of_file() => Age::OfOther,
                _ => Age::Old,
            }
        };
        rows::forget();
        if RULES.forget(age) != 0 {
            epoch::begin();
        }
        let is_gone = |address: u64| {
            let old = before.find(address);
            old.is_some_and(|old| now.find(address).is_none_or(|range| range.file != old.file))
        };
        registered::drop_tables(|head| {
            let [start, end] = [&head.start, &head.end].map(|at| at.load(Ordering::Relaxed));
            is_gone(start) || is_gone(end.wrapping_sub(1))
        });
        (self.patience, self.in_vain) = (0, 0);
        self.nowhere = [0; NOWHERE];
    }
}

/// The bucket of the page of an address in [`List::nowhere`].
fn nowhere_bucket(page: u64) -> usize {
    hash::bucket(page, NOWHERE.trailing_zeros())
}

/// Adds a mapping to the segment, unless it is in it already. The command symbolizes addresses by
/// it. Returns the module for the keys of its call sites, see [`abi::segment::call_site`]; `None`
/// if the mapping cannot be added.
fn publish(mapping: Mapping, path: &[u8], build: u64) -> Option<u64> {
    let used = &shared::header().modules_used;
    let entries = used.load(Ordering::Relaxed) as u32;
    // The first entry of this file in this place, of which it may map pieces, and true if another
    // file's entry precedes it.
    let (mut first, mut was_other, mut is_known) = (None, false, false);
    for index in 0..entries {
        let entry = entry(index);
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (start, end) = (of(&entry.start), of(&entry.end));
        if start >= mapping.end || mapping.start >= end {
            continue;
        }
        let is_build = build == 0 || of(&entry.build) == build;
        let is_file = is_build
            && of(&entry.inode) == mapping.inode
            && entry.device.load(Ordering::Relaxed) == mapping.device;
        let ahead = start.wrapping_sub(mapping.start);
        if !is_file || of(&entry.offset) != mapping.offset.wrapping_add(ahead) {
            was_other |= first.is_none();
            continue;
        }
        first.get_or_insert(index);
        let len = entry.path_len.load(Ordering::Relaxed);
        is_known = (start, end) == (mapping.start, mapping.end) && is_path(&entry.path, len, path);
        if is_known {
            break;
        }
    }
    if !is_known {
        let new = append(mapping, path, build)?;
        first.get_or_insert(new);
    }
    match (was_other, first) {
        (true, Some(first)) => Some(u64::from(first) + 1),
        _ => Some(0),
    }
}

/// Appends a mapping to the segment. Returns its index; `None` if there is no room, or if the path
/// is longer than [`MODULE_PATH`].
fn append(mapping: Mapping, path: &[u8], build: u64) -> Option<u32> {
    if path.len() > MODULE_PATH {
        return None;
    }
    let used = &shared::header().modules_used;
    let stride = size_of::<ModuleEntry>() as u64;
    let index = shared::take(AREA_MODULES, used, stride, 0, |_| Ok(())).ok()?;
    let entry = entry(index);
    entry.start.store(mapping.start, Ordering::Relaxed);
    entry.end.store(mapping.end, Ordering::Relaxed);
    entry.offset.store(mapping.offset, Ordering::Relaxed);
    entry.device.store(mapping.device, Ordering::Relaxed);
    entry.inode.store(mapping.inode, Ordering::Relaxed);
    entry.seen_tsc.store(clock::now(), Ordering::Relaxed);
    entry.build.store(build, Ordering::Relaxed);
    for (word, bytes) in entry.path.iter().zip(path.chunks(8)) {
        word.store(packed(bytes), Ordering::Relaxed);
    }
    entry.path_len.store(path.len() as u32, Ordering::Release);
    Some(index)
}

/// Module entry `index` of the segment.
fn entry(index: u32) -> &'static ModuleEntry {
    // SAFETY: the entry is in use.
    unsafe { shared::item(AREA_MODULES, index.into(), size_of::<ModuleEntry>() as u64) }
}

/// True if the first `len` bytes of `words` are `path`.
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
