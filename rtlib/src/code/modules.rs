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

/// Ticks of the time-stamp counter, some 20 ms.
pub const A_WHILE: u64 = 1 << 26;

/// The longest time between two readings of the maps for what has been found to be no code, a second.
const LONGEST_WHILE: u64 = A_WHILE << 6;

/// Addresses that are remembered to be in no code.
const NOWHERE: usize = 64;

/// How often the maps are read for such ones whatever it costs: code that is being written is not executable meanwhile.
const FREE: u32 = 32;

/// Part of the time that reading the maps may take for them then.
const PART: u64 = 8;

struct List {
    /// As they are, and as they were before the maps were last read; which is which.
    ranges: [Ranges; 2],
    turn: usize,
    /// Pages that held no code when the maps were last read; in any place, 0 where there is none.
    nowhere: [u64; NOWHERE],
    /// For how long that is taken to be so, and how often it was by now: longer each time that nothing has changed.
    patience: u64,
    in_vain: u32,
    /// Bytes of published tables at that time.
    tables: u64,
    /// The same when the maps were last read.
    parsed: u64,
    /// Whether all could be read the last time, and when that was, by the time-stamp counter.
    is_whole: bool,
    read_at: u64,
    /// When the command looked at those that it has published.
    looked_at: u64,
    /// Whether a Java virtual machine has been seen.
    has_java: bool,
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

    /// The executable mapping that holds `address`. The maps are read again where none is known: a library may have
    /// been loaded since.
    ///
    /// Runs with signals blocked, so that the lock's holder cannot be interrupted by a taker.
    pub fn find(&self, address: u64) -> Option<Range> {
        self.with(|list| list.known(address).or_else(|| list.find_anew(address)))
    }

    /// The same for a return address: where there was no code when the maps were last read, they are read again only
    /// when some time has passed, a small part of which that takes.
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

    /// Whether no code is to be expected any more where none has been found.
    pub fn is_settled(&self) -> bool {
        self.with(|list| list.patience >= LONGEST_WHILE || !sys::may_call())
    }

    /// Reads the maps again: code may have come or gone.
    pub fn refresh(&self) {
        self.with(List::refresh);
    }

    /// The same among those seen so far.
    pub fn known(&self, address: u64) -> Option<Range> {
        self.with(|list| list.find(address))
    }

    /// Reads the maps again if they were last read some time ago: what was there then may have been unloaded.
    pub fn read_sometimes(&self) {
        self.with(|list| {
            if list.is_older(A_WHILE) {
                list.refresh();
            }
        });
    }

    /// Whether a Java virtual machine has been seen. Its interpreter puts return addresses on the stack that follow no
    /// call, so that nothing in the code that it generates can be found out from what stands there.
    pub fn have_java(&self) -> bool {
        self.with(|list| list.has_java)
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
        self.ranges.get(self.turn)?.find(address).copied()
    }

    /// What is known of an address, with the tables that are published by now. Those of rules say nothing of mappings.
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

    /// The same after the maps have been read again.
    fn find_anew(&mut self, address: u64) -> Option<Range> {
        self.tables = shared::tables_used();
        self.refresh();
        self.find(address)
    }

    /// Whether the maps were last read longer ago than that.
    fn is_older(&self, than: u64) -> bool {
        clock::now().wrapping_sub(self.read_at) > than
    }

    fn is_nowhere(&self, address: u64) -> bool {
        let page = address & !(abi::PAGE - 1);
        page != 0 && self.nowhere[nowhere_bucket(page)] == page
    }

    fn note_nowhere(&mut self, address: u64) {
        let page = address & !(abi::PAGE - 1);
        self.nowhere[nowhere_bucket(page)] = page;
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
        let began = clock::now();
        // Where it may not look, what is new has come since the command looked before.
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
                // Where the maps cannot be read, what was known stays.
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
            // What cannot be read, like vsyscall, is nobody's code here.
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
            // A descriptor is missing for it, or /proc.
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

    fn now(&mut self) -> &mut Ranges {
        &mut self.ranges[self.turn & 1]
    }

    fn before(&self) -> &Ranges {
        &self.ranges[!self.turn & 1]
    }

    /// Begins another epoch where rules are of code that is not there any more, or may have one by now.
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

/// Where a page is noted, among others.
fn nowhere_bucket(page: u64) -> usize {
    hash::bucket(page, NOWHERE.trailing_zeros())
}

/// Writes a mapping into the segment, for the command to symbolize addresses by, unless it stands
/// there. What tells the call sites in it from those in others that were there before: see [`abi::segment::call_site`].
fn publish(mapping: Mapping, path: &[u8], build: u64) -> Option<u64> {
    let used = &shared::header().modules_used;
    let entries = used.load(Ordering::Relaxed) as u32;
    // The first entry of this file in this place, of which it may be mapped in pieces, and whether one of another is before that.
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

/// Writes a mapping behind the others: its number, where there is room.
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
