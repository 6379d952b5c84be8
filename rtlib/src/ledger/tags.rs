//! The tags of all records, by number. So a number leads to the record and to the identity of its
//! path at the same time.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::shortage::Shortage;

use super::tag::Tag;
use crate::os::{memory, sys};

/// The tags of all records.
pub static TAGS: Tags = Tags::new();

/// Tags in the first chunk, a power of two. Each further chunk has twice as many.
const FIRST: u64 = 1 << 12;
/// Enough chunks for every number that fits into a link of [`super::paths`].
const CHUNKS: usize = 15;

/// Chunks of tags, which are never freed. A word is the address that tag number `-FIRST` would have
/// if all tags were contiguous with those of the chunk; 0 if the chunk is not mapped.
pub struct Tags([AtomicU64; CHUNKS]);

impl Tags {
    /// No tags.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; CHUNKS])
    }

    /// Tag `number`, for which memory has been reserved. Only the thread that owns the record uses
    /// it.
    #[inline(always)]
    pub fn tag(&self, number: u32) -> *mut Tag {
        let (chunk, at) = place(number.into());
        let base = self.0[chunk % CHUNKS].load(Ordering::Relaxed);
        (base + at * size_of::<Tag>() as u64) as *mut Tag
    }

    /// Reserves memory for tag `number`.
    ///
    /// # Errors
    /// There is no memory.
    pub fn reserve(&self, number: u64) -> Result<(), Shortage> {
        let (chunk, _) = place(number);
        let known = self.0.get(chunk).ok_or(Shortage::Room)?;
        if known.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let before = (FIRST << chunk) * size_of::<Tag>() as u64;
        let base = match memory::map(before) {
            Ok(base) => base,
            // If there is memory for only one chunk, another thread may have been first.
            Err(_) if known.load(Ordering::Relaxed) != 0 => return Ok(()),
            Err(shortage) => return Err(shortage),
        };
        sys::prefer_huge_pages(base, before);
        let new = base.wrapping_sub(before);
        if known
            .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: mapped above. The chunk of another thread is used instead.
            unsafe { memory::unmap(base) };
        }
        Ok(())
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

/// The chunk of a number, and the tag's index relative to the chunk's address.
#[inline(always)]
fn place(number: u64) -> (usize, u64) {
    let at = number + FIRST;
    ((at.ilog2() - FIRST.ilog2()) as usize, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::parameters::ipath_parameters;
    use std::vec::Vec;

    #[test]
    fn chunks_follow_each_other() {
        let places: Vec<_> = [0, 4095, 4096, 12287, 12288].map(place).into();
        let expected = [(0, 4096), (0, 8191), (1, 8192), (1, 16383), (2, 16384)];
        assert_eq!(places, expected);
        assert!(place((1 << 26) - 1).0 < CHUNKS);
    }

    #[test]
    fn every_tag_has_a_place_of_its_own() {
        ipath_parameters.system_calls.store(1, Ordering::Relaxed);
        let tags = Tags::new();
        let numbers = 0..20_000;
        let mut all: Vec<_> = numbers
            .map(|number| {
                tags.reserve(number.into()).expect("memory");
                tags.tag(number) as usize
            })
            .collect();
        all.sort_unstable();
        assert!(
            all.windows(2)
                .all(|two| two[1] - two[0] >= size_of::<Tag>())
        );
        assert!(all.iter().all(|at| at % align_of::<Tag>() == 0));
    }
}
