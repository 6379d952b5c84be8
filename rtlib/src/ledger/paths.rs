//! The paths of a thread, with its record of each.
//!
//! A hash index with open addressing leads from the path's hash to the number of the record. The
//! cache lines identified by it are then prefetched at once: the record, and the tag that
//! identifies its path. A return address is represented by the number of its unwind rule, which has
//! two bytes instead of eight.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::shortage::Shortage;

use super::areas::For;
use super::tag::{INLINE, PER_WORD, Tag, TagKey};
use super::tags::TAGS;
use crate::os::{memory, sys};
use crate::walk::Path;

/// Initial words of the index, a power of two.
const WORDS: u64 = 256;
/// Words of the longest path of which a copy is kept.
const LONGEST_COPY: u64 = (1 << 12) / PER_WORD + 1;
/// The maximum number of copied words of all threads.
const MOST_COPIED: u64 = 1 << 23;
/// The number of words of all threads for which copies were requested, except too long ones.
static COPIED: AtomicU64 = AtomicU64::new(0);

/// An entry of the index: the number of a record plus one, and the highest bits of the hash above
/// it. 0 if it is free. Short entries keep more of the index in the processor's caches.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Link(u32);

/// A thread's table.
#[repr(C)]
pub struct Paths {
    index: *mut Link,
    /// The length of the index in words, minus one.
    mask: u64,
    /// The number of entries in use.
    used: u64,
    /// The address of the next copy of sites.
    copies: *mut u64,
    /// The number of free words from `copies` on.
    copies_left: u64,
}

/// Bytes of the index of a new table.
pub const BYTES: u64 = bytes(WORDS);

/// Bytes of an index of `words` entries.
const fn bytes(words: u64) -> u64 {
    words * size_of::<Link>() as u64
}

impl Link {
    const FREE: Self = Self(0);
    /// Bits of the record's number in a link.
    const NUMBER: u32 = 26;

    /// The link to record number `record`, whose path has `key`. `None` if the number is too large.
    fn new(record: u32, key: TagKey) -> Option<Self> {
        let number = record.checked_add(1)?;
        (number >> Self::NUMBER == 0).then_some(Self(number | Self::hash(key)))
    }

    /// The bits of a key's hash in a link, in their place.
    #[inline(always)]
    fn hash(key: TagKey) -> u32 {
        key.first() as u32 >> Self::NUMBER << Self::NUMBER
    }

    /// True if the record's path may have this key; false if it has another one.
    #[inline(always)]
    fn may_be(self, key: TagKey) -> bool {
        (self.0 ^ Self::hash(key)) >> Self::NUMBER == 0
    }

    /// The number of the record. The link is not free.
    #[inline(always)]
    fn record(self) -> u32 {
        (self.0 & ((1 << Self::NUMBER) - 1)) - 1
    }
}

impl Paths {
    /// Turns zeroed memory into an empty table. It works in place, because the runtime's is inside
    /// a larger structure.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 4, without another user.
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

    /// The number of the first record of a path for which `is` returns true; `None` if there is
    /// none. `fetch` is called with the number of a likely record as early as possible.
    ///
    /// # Safety
    /// The path has as many frames or sites as its walk says.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        path: &Path,
        is: impl Fn(u32) -> bool,
        fetch: impl Fn(u32),
    ) -> Option<u32> {
        // SAFETY: guaranteed by the caller.
        let is = |tag: &Tag, number| unsafe { tag.is(path) } && is(number);
        self.look_up(TagKey::of(path), is, fetch)
    }

    /// The number of the first record of the path of `function` with the node `node` for which `is`
    /// returns true; `None` if there is none. It only finds entries made by [`Paths::add_by_node`].
    pub fn find_by_node(&self, function: u32, node: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let is = |tag: &Tag, number| tag.path == node && is(number);
        self.look_up(TagKey::of_node(function, node), is, |_| ())
    }

    /// The number of the first record with this key for which `is` returns true; `None` if there is
    /// none.
    #[inline(always)]
    fn look_up(
        &self,
        key: TagKey,
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
                // SAFETY: entries lead to tags in use, of this thread's records.
                let tag = unsafe { &*TAGS.tag(link.record()) };
                if tag.key == key && is(tag, link.record()) {
                    return Some(link.record());
                }
            }
            at += 1;
        }
    }

    /// Reserves room for one more path. Without memory for a larger index, an eighth of the index
    /// is reserved for overflow paths.
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

    /// Adds the record `number` of `path`, whose node is `node`, including its tag. Room has been
    /// reserved.
    ///
    /// # Errors
    /// The number is too large.
    ///
    /// # Safety
    /// As for [`Paths::find`], which has not found the path.
    pub unsafe fn add(&mut self, path: &Path, node: u32, number: u32) -> Result<(), Shortage> {
        let key = TagKey::of(path);
        let len = path.walk.len;
        let words = len.div_ceil(PER_WORD) as usize;
        let mut sites = [0; INLINE];
        // SAFETY: guaranteed by the caller; there is room for as many words.
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

    /// Adds the record `number` of the path of a function with a known node.
    ///
    /// # Errors
    /// As for [`Paths::add`].
    pub fn add_by_node(&mut self, function: u32, node: u32, number: u32) -> Result<(), Shortage> {
        let key = TagKey::of_node(function, node);
        self.add_tag(Tag::new(key, node, [0; INLINE]), number)
    }

    /// Allocates `words` words for a copy that stays for the rest of the session; null if there is
    /// no room.
    fn room(&mut self, words: u64) -> *mut u64 {
        /// Bytes mapped at a time for copies.
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

    /// Stores the tag of a record and adds the record to the index.
    ///
    /// # Errors
    /// The record's number is too large.
    fn add_tag(&mut self, new: Tag, record: u32) -> Result<(), Shortage> {
        let link = Link::new(record, new.key).ok_or(Shortage::Room)?;
        // SAFETY: there is memory for the tag, which belongs to this thread like the record.
        unsafe { *TAGS.tag(record) = new };
        self.put(link, new.key);
        self.used += 1;
        Ok(())
    }

    /// Stores a link in the index, which has a free entry.
    fn put(&mut self, link: Link, key: TagKey) {
        let mut at = key.first();
        // SAFETY: masked places are in the index, and some are free.
        unsafe {
            while *self.index.add((at & self.mask) as usize) != Link::FREE {
                at += 1;
            }
            *self.index.add((at & self.mask) as usize) = link;
        }
    }

    /// Doubles the length of the index.
    fn grow(&mut self) -> Result<(), Shortage> {
        let (old, words) = (self.index, self.mask + 1);
        let bytes = bytes(2 * words);
        let base = memory::map(bytes)?;
        sys::prefer_huge_pages(base, bytes);
        self.index = base as *mut Link;
        self.mask = 2 * words - 1;
        // SAFETY: places are below the old length, and entries lead to tags in use. The old index
        // is unused after this. `unmap` ignores an initial index, which is not a mapping of its
        // own.
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

    /// A table for a test. The tests' record numbers must differ, because they share the tags.
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
        // SAFETY: the memory is zeroed, aligned, and outlives the table.
        unsafe { paths.begin(base) };
        (paths, memory)
    }

    /// A walk of `len` frames with a constant hash, and its sites.
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
        let key = TagKey(u64::MAX);
        let most = (1 << Link::NUMBER) - 2;
        let link = Link::new(most, key).expect("the largest");
        assert_eq!(link.record(), most);
        assert!(link.may_be(key) && !link.may_be(TagKey(0)));
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
