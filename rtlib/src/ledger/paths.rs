//! The paths that a thread has been on, with its record of each.
//!
//! An index with open addressing leads by the path's hash to the record's number. The lines of memory that
//! it names are then fetched at once: the record, and the tag that tells what its path is. A return
//! address is told by the number of its unwind rule, which has two bytes where the address has eight.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::shortage::Shortage;

use super::areas::For;
use super::tag::{INLINE, Key, PER_WORD, Tag};
use super::tags::TAGS;
use crate::os::{memory, sys};
use crate::walk::Path;

/// Words of the index at first, a power of two.
const WORDS: u64 = 256;
/// Words of the longest path that is copied.
const LONGEST_COPY: u64 = (1 << 12) / PER_WORD + 1;
/// Words that are copied at most, and how many have been, of all threads.
const MOST_COPIED: u64 = 1 << 23;
static COPIED: AtomicU64 = AtomicU64::new(0);

/// A word of the index: the number of a record plus one, above it the uppermost bits of the hash. 0 where it
/// is free. It is as short as can be, for the more of the index stays in the processor's caches.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Link(u32);

/// A thread's table.
#[repr(C)]
pub struct Paths {
    index: *mut Link,
    /// Its words less one.
    mask: u64,
    used: u64,
    /// Where the next copy of sites goes, and how many words there is room for.
    copies: *mut u64,
    copies_left: u64,
}

/// Bytes of a new table.
pub const BYTES: u64 = bytes(WORDS);

const fn bytes(words: u64) -> u64 {
    words * size_of::<Link>() as u64
}

impl Link {
    const FREE: Self = Self(0);
    /// Bits of the number.
    const NUMBER: u32 = 26;

    /// `None` where the number is too large.
    fn new(record: u32, key: Key) -> Option<Self> {
        let number = record.checked_add(1)?;
        (number >> Self::NUMBER == 0).then_some(Self(number | Self::hash(key)))
    }

    #[inline(always)]
    fn hash(key: Key) -> u32 {
        key.first() as u32 >> Self::NUMBER << Self::NUMBER
    }

    #[inline(always)]
    fn may_be(self, key: Key) -> bool {
        (self.0 ^ Self::hash(key)) >> Self::NUMBER == 0
    }

    #[inline(always)]
    fn record(self) -> u32 {
        (self.0 & ((1 << Self::NUMBER) - 1)) - 1
    }
}

impl Paths {
    /// Makes zeroed memory a table without paths: the runtime's is in the middle of a thread's.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 4, that nobody else uses.
    pub const unsafe fn begin(&mut self, base: u64) {
        self.index = base as *mut Link;
        self.mask = WORDS - 1;
    }

    /// Forgets all paths.
    pub fn forget_all(&mut self) {
        // SAFETY: the index has as many words, and zeroes are free ones.
        unsafe { self.index.write_bytes(0, self.mask as usize + 1) };
        self.used = 0;
    }

    /// The record of a path that `is` the one wanted, if there is one. It is told to `fetch` as soon as it is likely.
    ///
    /// # Safety
    /// The path's frames and sites are as many as its walk says.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        path: &Path,
        is: impl Fn(u32) -> bool,
        fetch: impl Fn(u32),
    ) -> Option<u32> {
        // SAFETY: the caller's promise.
        let is = |tag: &Tag, number| unsafe { tag.is(path) } && is(number);
        self.look_up(Key::of(path), is, fetch)
    }

    /// The same of the path of a function whose node is known, if it has been added by that.
    pub fn find_by_node(&self, function: u32, node: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let is = |tag: &Tag, number| tag.path == node && is(number);
        self.look_up(Key::of_node(function, node), is, |_| ())
    }

    #[inline(always)]
    fn look_up(
        &self,
        key: Key,
        is: impl Fn(&Tag, u32) -> bool,
        fetch: impl Fn(u32),
    ) -> Option<u32> {
        let mut at = key.first();
        loop {
            // SAFETY: masked, the place is in the index.
            let link = unsafe { *self.index.add((at & self.mask) as usize) };
            if link == Link::FREE {
                return None;
            }
            if link.may_be(key) {
                fetch(link.record());
                // SAFETY: links lead to tags in use, of this thread's records.
                let tag = unsafe { &*TAGS.tag(link.record()) };
                if tag.key == key && is(tag, link.record()) {
                    return Some(link.record());
                }
            }
            at += 1;
        }
    }

    /// Sees to it that there is room for one more. An eighth is kept for overflow paths where there is no
    /// memory for more.
    ///
    /// # Errors
    /// There is no memory.
    pub fn reserve(&mut self, what: For) -> Result<(), Shortage> {
        let words = self.mask + 1;
        let room = match what {
            For::Path => words - words / 16 * 3,
            For::Overflow => words - words / 16,
        };
        if self.used < room {
            return Ok(());
        }
        self.grow()
    }

    /// Adds the record `number` of `path`, whose node is `node`, for which room has been reserved, in the tags
    /// as well.
    ///
    /// # Errors
    /// The number is too large.
    ///
    /// # Safety
    /// As for [`Paths::find`], which has not found it.
    pub unsafe fn add(&mut self, path: &Path, node: u32, number: u32) -> Result<(), Shortage> {
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
        self.add_tag(Tag::new(key, node, sites), number)
    }

    /// Adds the record `number` of the path of a function whose node is known in the same way.
    ///
    /// # Errors
    /// As for [`Paths::add`].
    pub fn add_by_node(&mut self, function: u32, node: u32, number: u32) -> Result<(), Shortage> {
        let key = Key::of_node(function, node);
        self.add_tag(Tag::new(key, node, [0; INLINE]), number)
    }

    /// Room for a copy that stays as long as the session; null where there is none.
    fn room(&mut self, words: u64) -> *mut u64 {
        /// Bytes that are mapped at a time.
        const CHUNK: u64 = 1 << 18;
        if words > LONGEST_COPY || COPIED.fetch_add(words, Ordering::Relaxed) > MOST_COPIED {
            return ptr::null_mut();
        }
        if self.copies_left < words {
            let Ok(chunk) = memory::map(CHUNK) else {
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

    fn add_tag(&mut self, new: Tag, record: u32) -> Result<(), Shortage> {
        let link = Link::new(record, new.key).ok_or(Shortage::Room)?;
        // SAFETY: there is memory for the tag, which is this thread's with the record.
        unsafe { *TAGS.tag(record) = new };
        self.put(link, new.key);
        self.used += 1;
        Ok(())
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

    fn grow(&mut self) -> Result<(), Shortage> {
        let (old, words) = (self.index, self.mask + 1);
        let bytes = bytes(2 * words);
        let base = memory::map(bytes)?;
        sys::prefer_huge_pages(base, bytes);
        self.index = base as *mut Link;
        self.mask = 2 * words - 1;
        // SAFETY: places are below the old length, and links lead to tags in use. Nothing is left in the old
        // index then; where it is no mapping of its own it stays.
        unsafe {
            for at in 0..words as usize {
                let link = *old.add(at);
                if link != Link::FREE {
                    self.put(link, (*TAGS.tag(link.record())).key);
                }
            }
            memory::unmap(old as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::parameters::ipath_parameters;
    use crate::walk::Walk;
    use abi::cause::Cause;
    use abi::segment::ROOT_COMPLETE;
    use std::vec;
    use std::vec::Vec;

    /// A table for a test whose records have numbers that no other's have: the tags are one for all.
    fn paths() -> (Paths, Vec<u64>) {
        ipath_parameters.system_calls.store(1, Ordering::Relaxed);
        TAGS.reserve(0).expect("memory");
        let mut memory = vec![0; BYTES as usize / 8];
        let base = memory.as_mut_ptr() as u64;
        let mut paths = Paths {
            index: ptr::null_mut(),
            mask: 0,
            used: 0,
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
        let mut walk = Walk::begin(0, 0);
        walk.len = len as u64;
        walk.hash = 0x1234_5678_9abc_def0;
        walk.root = root;
        walk.has_sites = true;
        (walk, sites)
    }

    fn find(paths: &Paths, function: u32, (walk, sites): &(Walk, Vec<u64>)) -> Option<u32> {
        // SAFETY: there are as many sites as the walk says.
        unsafe { paths.find(&path(function, walk, sites), |_| true, |_| ()) }
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
        all.push((7, walk(20, Cause::NoRule.node())));
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
    fn paths_are_found_by_function_and_node() {
        let (mut paths, _memory) = paths();
        paths.add_by_node(3, 9, 100).expect("room");
        paths.add_by_node(4, 10, 101).expect("room");
        assert_eq!(paths.find_by_node(3, 9, |_| true), Some(100));
        assert_eq!(paths.find_by_node(4, 10, |_| true), Some(101));
        assert_eq!(paths.find_by_node(3, 10, |_| true), None);
    }

    #[test]
    fn numbers_beyond_a_link_are_refused() {
        let key = Key(u64::MAX);
        let most = (1 << Link::NUMBER) - 2;
        let link = Link::new(most, key).expect("the largest");
        assert_eq!(link.record(), most);
        assert!(link.may_be(key) && !link.may_be(Key(0)));
        assert!(Link::new(most + 1, key).is_none());
        assert!(Link::new(u32::MAX, key).is_none());
    }

    #[test]
    fn an_index_grows_with_its_paths() {
        let (mut paths, _memory) = paths();
        let mut all: Vec<_> = (0..5000).map(|_| walk(20, ROOT_COMPLETE)).collect();
        for (number, (walk, sites)) in all.iter_mut().enumerate() {
            walk.hash = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let number = 10_000 + number as u32;
            paths.reserve(For::Path).expect("memory");
            TAGS.reserve(number.into()).expect("memory");
            let path = path(7, walk, sites);
            // SAFETY: there are as many sites as the walk says.
            unsafe { paths.add(&path, 5, number) }.expect("room");
        }
        assert_eq!(paths.mask + 1, 8192);
        for (number, walk) in all.iter().enumerate() {
            assert_eq!(find(&paths, 7, walk), Some(10_000 + number as u32));
        }
    }
}
