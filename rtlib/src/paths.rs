//! The paths that a thread has been on, with its record of each.
//!
//! An index with open addressing leads by the path's hash to its number among the thread's paths and to
//! its record. The two lines of memory that these name are then fetched at once: what the path is, and
//! the record. A return address is told by the number of its unwind rule, which has two bytes where the
//! address has eight.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::MAX_FUNCTIONS;
use abi::segment::FIRST_NODE;

use crate::segment::For;
use crate::state::RULES;
use crate::walk::Walk;
use crate::{memory, sys, tree};

/// Room for so many paths at first.
const ROOM: u64 = 128;
/// Words of the index for each of them: at most half of it is in use.
const SPARSE: u64 = 2;
/// Sites in a word.
const PER_WORD: u64 = 4;
/// Words of sites that a slot holds itself.
const INLINE: usize = 6;
/// Words of the longest path that is copied.
const LONGEST_COPY: u64 = (1 << 12) / PER_WORD + 1;
/// Words that are copied at most, and how many have been, of all threads.
const MOST_COPIED: u64 = 1 << 23;
static COPIED: AtomicU64 = AtomicU64::new(0);

/// One path; a line of memory.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    /// The path's node.
    path: u32,
    _padding: u32,
    /// Its sites from the innermost on, the last word filled up with zeros. Where there is no room for
    /// all, the address of their number and a copy of them, or null where only the nodes tell them.
    sites: [u64; INLINE],
}

/// The upper half of the hash; below it 14 bits of function, 15 of length and 3 of root.
///
/// The length is the largest for all longer ones, and 0 where the path is not told by sites. Then its nodes tell it, or it is a function's
/// overflow path, which has neither hash nor root.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Key(u64);

/// A word of the index: from the lowest bit on the number of a slot plus one, the number of the record,
/// and the uppermost bits of the hash. 0 where it is free.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Link(u64);

/// A path as a walk has left it.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    /// The function's id.
    pub function: u32,
    /// How the walk was.
    pub walk: &'a Walk,
    /// Its return addresses; not used where the walk has sites.
    pub frames: *const u64,
    /// Its sites, where the walk has those: whole words.
    pub sites: *const u64,
}

/// A thread's table.
#[repr(C)]
pub struct Paths {
    index: *mut Link,
    /// Its words less one.
    mask: u64,
    slots: *mut Slot,
    used: u64,
    room: u64,
    /// Where the next copy of sites goes, and how many words there is room for.
    copies: *mut u64,
    copies_left: u64,
}

/// Bytes of a new table.
pub const BYTES: u64 = bytes(ROOM);

const fn bytes(room: u64) -> u64 {
    room * (size_of::<Slot>() as u64 + SPARSE * size_of::<Link>() as u64)
}

const _: () = assert!(size_of::<Slot>() == 64);
const _: () = assert!(MAX_FUNCTIONS <= 1 << (Key::FUNCTION_END - Key::LEN_END));
const _: () = assert!(FIRST_NODE <= 1 << Key::ROOT_END);

impl Key {
    const ROOT_END: u32 = 3;
    const LEN_END: u32 = 18;
    const FUNCTION_END: u32 = 32;
    const LONGEST: u64 = (1 << (Self::LEN_END - Self::ROOT_END)) - 1;

    #[inline(always)]
    fn of(path: &Path) -> Self {
        let walk = path.walk;
        let len = if walk.has_sites {
            walk.len.min(Self::LONGEST)
        } else {
            0
        };
        Self(
            walk.hash >> Self::FUNCTION_END << Self::FUNCTION_END
                | u64::from(path.function) << Self::LEN_END
                | len << Self::ROOT_END
                | u64::from(walk.root),
        )
    }

    fn of_overflow(function: u32, path: u32) -> Self {
        Self(u64::from(path) << Self::FUNCTION_END | u64::from(function) << Self::LEN_END)
    }

    #[inline(always)]
    fn has_sites(self) -> bool {
        self.0 >> Self::ROOT_END & Self::LONGEST != 0
    }

    #[inline(always)]
    fn first(self) -> u64 {
        self.0 >> Self::FUNCTION_END
    }
}

impl Link {
    const FREE: Self = Self(0);
    /// Bits of either number.
    const NUMBER: u32 = 26;
    const HASH: u32 = 2 * Self::NUMBER;

    /// `None` where a number is too large.
    fn new(slot: u64, record: u32, key: Key) -> Option<Self> {
        let (slot, record) = (slot + 1, u64::from(record));
        let fits = slot >> Self::NUMBER == 0 && record >> Self::NUMBER == 0;
        fits.then_some(Self(slot | record << Self::NUMBER | Self::hash(key)))
    }

    #[inline(always)]
    fn hash(key: Key) -> u64 {
        key.0 >> Self::HASH << Self::HASH
    }

    #[inline(always)]
    fn may_be(self, key: Key) -> bool {
        (self.0 ^ key.0) >> Self::HASH == 0
    }

    #[inline(always)]
    fn slot(self) -> u64 {
        (self.0 & ((1 << Self::NUMBER) - 1)) - 1
    }

    #[inline(always)]
    fn record(self) -> u32 {
        (self.0 >> Self::NUMBER & ((1 << Self::NUMBER) - 1)) as u32
    }
}

impl Slot {
    /// Whether it is this path, which has the same key.
    #[inline(always)]
    unsafe fn is(&self, path: &Path) -> bool {
        let len = path.walk.len;
        let words = len.div_ceil(PER_WORD) as usize;
        // SAFETY: slots hold the sites that their key tells, or the address of a copy of them. Word by
        // word: a call of `bcmp` would come of comparing slices, with vector registers.
        unsafe {
            let is_inline = words <= INLINE && self.key.has_sites();
            let mut own = self.sites.as_ptr();
            if !is_inline {
                own = self.sites[0] as *const u64;
                if own.is_null() {
                    let sites = path.sites.cast();
                    return is_by_nodes(self.path, path.function, path.walk, path.frames, sites);
                }
                if own.read() != len {
                    return false;
                }
                own = own.add(1);
            }
            let mut at = 0;
            while at < words {
                if own.add(at).read_volatile() != path.sites.add(at).read() {
                    return false;
                }
                at += 1;
            }
        }
        true
    }
}

/// Whether the nodes under `node` tell the path of `function` as a walk has left it. It takes little of
/// the stack, which is why its arguments are the parts of a [`Path`].
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn is_by_nodes(
    node: u32,
    function: u32,
    walk: &Walk,
    frames: *const u64,
    sites: *const u16,
) -> bool {
    let frame = |at: usize| {
        // SAFETY: the walk has left as many frames, or sites.
        unsafe {
            if walk.has_sites {
                RULES.address(sites.add(at).read())
            } else {
                frames.add(at).read()
            }
        }
    };
    tree::is_path(node, function, walk.len as usize, frame, walk.root)
}

impl Paths {
    /// Makes zeroed memory a table without paths: the runtime's is in the middle of a thread's.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 64, that nobody else uses.
    pub const unsafe fn begin(&mut self, base: u64) {
        self.index = (base + ROOM * size_of::<Slot>() as u64) as *mut Link;
        self.mask = ROOM * SPARSE - 1;
        self.slots = base as *mut Slot;
        self.room = ROOM;
    }

    /// The record of a path, if it has one. It is told to `fetch` as soon as it is likely.
    ///
    /// # Safety
    /// The path's frames and sites are as many as its walk says.
    #[inline(always)]
    pub unsafe fn find(&self, path: &Path, fetch: impl Fn(u32)) -> Option<u32> {
        // SAFETY: the caller's promise.
        unsafe { self.look_up(Key::of(path), |slot| slot.is(path), fetch) }
    }

    /// The record of a function's overflow path, if it has one.
    pub fn find_overflow(&self, function: u32, path: u32) -> Option<u32> {
        let is = |slot: &Slot| slot.path == path;
        self.look_up(Key::of_overflow(function, path), is, |_| ())
    }

    #[inline(always)]
    fn look_up(&self, key: Key, is: impl Fn(&Slot) -> bool, fetch: impl Fn(u32)) -> Option<u32> {
        let mut at = key.first();
        loop {
            // SAFETY: masked, the place is in the index.
            let link = unsafe { *self.index.add((at & self.mask) as usize) };
            if link == Link::FREE {
                return None;
            }
            if link.may_be(key) {
                fetch(link.record());
                // SAFETY: links lead to slots in use.
                let slot = unsafe { &*self.slots.add(link.slot() as usize) };
                if slot.key == key && is(slot) {
                    return Some(link.record());
                }
            }
            at += 1;
        }
    }

    /// Sees to it that there is room for one more. A quarter is kept for overflow paths where there is no
    /// memory for more.
    pub fn reserve(&mut self, what: For) -> Option<()> {
        let room = match what {
            For::Path => self.room - self.room / 4,
            For::Overflow => self.room,
        };
        if self.used < room {
            return Some(());
        }
        self.grow()
    }

    /// Adds the record `number` of `path`, whose node is `node`, for which room has been reserved. `None`
    /// where the numbers are too large.
    ///
    /// # Safety
    /// As for [`Paths::find`], which has not found it.
    pub unsafe fn add(&mut self, path: &Path, node: u32, number: u32) -> Option<()> {
        let key = Key::of(path);
        let len = path.walk.len;
        let words = len.div_ceil(PER_WORD) as usize;
        let mut sites = [0; INLINE];
        // SAFETY: the caller's promise; there is room for as many words.
        unsafe {
            if key.has_sites() && words <= INLINE {
                ptr::copy_nonoverlapping(path.sites, sites.as_mut_ptr(), words);
            } else if key.has_sites() {
                let copy = self.room(words as u64 + 1);
                if !copy.is_null() {
                    copy.write(len);
                    ptr::copy_nonoverlapping(path.sites, copy.add(1), words);
                }
                sites[0] = copy as u64;
            }
        }
        let slot = Slot {
            key,
            path: node,
            _padding: 0,
            sites,
        };
        self.add_slot(slot, number)
    }

    /// Adds the record `number` of the overflow path of a function in the same way.
    pub fn add_overflow(&mut self, function: u32, path: u32, number: u32) -> Option<()> {
        let slot = Slot {
            key: Key::of_overflow(function, path),
            path,
            _padding: 0,
            sites: [0; INLINE],
        };
        self.add_slot(slot, number)
    }

    /// Room for a copy that stays as long as the session; null where there is none.
    fn room(&mut self, words: u64) -> *mut u64 {
        /// Bytes that are mapped at a time.
        const CHUNK: u64 = 1 << 18;
        if words > LONGEST_COPY || COPIED.fetch_add(words, Ordering::Relaxed) > MOST_COPIED {
            return ptr::null_mut();
        }
        if self.copies_left < words {
            let Some(chunk) = memory::map(CHUNK) else {
                return ptr::null_mut();
            };
            self.copies = chunk as *mut u64;
            self.copies_left = CHUNK / 8;
        }
        let copy = self.copies;
        // SAFETY: inside the chunk, or at its end.
        self.copies = unsafe { copy.add(words as usize) };
        self.copies_left -= words;
        copy
    }

    fn add_slot(&mut self, new: Slot, record: u32) -> Option<()> {
        let link = Link::new(self.used, record, new.key)?;
        // SAFETY: below the number that room has been reserved for.
        unsafe { *self.slots.add(self.used as usize) = new };
        self.put(link, new.key);
        self.used += 1;
        Some(())
    }

    fn put(&mut self, link: Link, key: Key) {
        let mut at = key.first();
        // SAFETY: masked, places are in the index; some are free.
        unsafe {
            while *self.index.add((at & self.mask) as usize) != Link::FREE {
                at += 1;
            }
            *self.index.add((at & self.mask) as usize) = link;
        }
    }

    fn grow(&mut self) -> Option<()> {
        let (old, words) = (Self { ..*self }, self.mask + 1);
        let room = 2 * self.room;
        let base = memory::map(bytes(room))?;
        sys::prefer_huge_pages(base, bytes(room));
        self.slots = base as *mut Slot;
        self.index = (base + room * size_of::<Slot>() as u64) as *mut Link;
        (self.mask, self.room) = (room * SPARSE - 1, room);
        // SAFETY: places are below the old lengths, and the new ones are no shorter. Nothing is left in
        // the old table then; where it is no mapping of its own it stays.
        unsafe {
            ptr::copy_nonoverlapping(old.slots, self.slots, old.used as usize);
            for at in 0..words as usize {
                let link = *old.index.add(at);
                if link != Link::FREE {
                    self.put(link, (*self.slots.add(link.slot() as usize)).key);
                }
            }
            memory::unmap(old.slots as u64);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::segment::{ROOT_COMPLETE, ROOT_INCOMPLETE};
    use std::vec;
    use std::vec::Vec;

    fn paths() -> (Paths, Vec<u64>) {
        let mut memory = vec![0; BYTES as usize / 8 + 8];
        let base = (memory.as_mut_ptr() as u64).next_multiple_of(64);
        let mut paths = Paths {
            index: ptr::null_mut(),
            mask: 0,
            slots: ptr::null_mut(),
            used: 0,
            room: 0,
            copies: ptr::null_mut(),
            copies_left: 0,
        };
        // SAFETY: the memory is zeroed, aligned, and lives as long as the paths.
        unsafe { paths.begin(base) };
        (paths, memory)
    }

    /// A walk of so many frames, all under one hash, and its sites.
    fn walk(len: usize, root: u32) -> (Walk, Vec<u64>) {
        let sites = (0..len.div_ceil(4))
            .map(|word| word as u64 * 0x1_0001)
            .collect();
        let walk = Walk {
            len: len as u64,
            hash: 0x1234_5678_9abc_def0,
            root,
            stack: 0,
            reads: 0,
            is_determined: true,
            has_sites: true,
        };
        (walk, sites)
    }

    fn find(paths: &Paths, function: u32, (walk, sites): &(Walk, Vec<u64>)) -> Option<u32> {
        // SAFETY: there are as many sites as the walk says.
        unsafe { paths.find(&path(function, walk, sites), |_| ()) }
    }

    fn path<'a>(function: u32, walk: &'a Walk, sites: &[u64]) -> Path<'a> {
        Path {
            function,
            walk,
            frames: ptr::null(),
            sites: sites.as_ptr(),
        }
    }

    #[test]
    fn paths_of_one_hash_are_told_apart() {
        let (mut paths, _memory) = paths();
        let mut all = vec![(7, walk(20, ROOT_COMPLETE)), (8, walk(20, ROOT_COMPLETE))];
        all.push((7, walk(20, ROOT_INCOMPLETE)));
        all.push((7, walk(24, ROOT_COMPLETE)));
        all.push((7, walk(19, ROOT_COMPLETE)));
        let mut other = walk(20, ROOT_COMPLETE);
        other.1[4] += 1;
        all.push((7, other));
        for (number, (function, walk)) in all.iter().enumerate() {
            assert_eq!(find(&paths, *function, walk), None);
            let path = path(*function, &walk.0, &walk.1);
            // SAFETY: there are as many sites as the walk says.
            unsafe { paths.add(&path, 5, number as u32) }.expect("room");
        }
        for (number, (function, walk)) in all.iter().enumerate() {
            assert_eq!(find(&paths, *function, walk), Some(number as u32));
        }
    }

    #[test]
    fn overflow_paths_are_found_by_function_and_node() {
        let (mut paths, _memory) = paths();
        paths.add_overflow(3, 9, 1).expect("room");
        paths.add_overflow(4, 10, 2).expect("room");
        assert_eq!(paths.find_overflow(3, 9), Some(1));
        assert_eq!(paths.find_overflow(4, 10), Some(2));
        assert_eq!(paths.find_overflow(3, 10), None);
    }

    #[test]
    fn numbers_beyond_a_link_are_refused() {
        let key = Key(u64::MAX);
        let most = (1 << Link::NUMBER) - 1;
        let link = Link::new(most - 1, most as u32, key).expect("the largest");
        assert_eq!((link.slot(), link.record()), (most - 1, most as u32));
        assert!(link.may_be(key) && !link.may_be(Key(0)));
        assert!(Link::new(most, 0, key).is_none());
        assert!(Link::new(0, most as u32 + 1, key).is_none());
    }
}
