//! What the records are for: a place in memory for each record's number, so that a number leads to the
//! record and to what tells its path at once.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::shortage::Shortage;

use super::tag::Tag;
use crate::os::{memory, sys};

/// What the records are for.
pub static TAGS: Tags = Tags::new();

/// Tags of the first chunk, a power of two; each further chunk has twice as many.
const FIRST: u64 = 1 << 12;
/// Enough of them for every number that a [`super::paths`] link can hold.
const CHUNKS: usize = 15;

/// Chunks of tags, never given back. Of each the address that its tags would have if the numbers before
/// them, and [`FIRST`] more, stood in front; 0 while it is not mapped.
pub struct Tags([AtomicU64; CHUNKS]);

impl Tags {
    /// No tag.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; CHUNKS])
    }

    /// Tag `number`, for which room has been reserved. Only the thread that has the record uses it.
    #[inline(always)]
    pub fn tag(&self, number: u32) -> *mut Tag {
        let (chunk, at) = place(number.into());
        let base = self.0[chunk % CHUNKS].load(Ordering::Relaxed);
        (base + at * size_of::<Tag>() as u64) as *mut Tag
    }

    /// Sees to it that tag `number` has memory.
    ///
    /// # Errors
    /// It is not available.
    pub fn reserve(&self, number: u64) -> Result<(), Shortage> {
        let (chunk, _) = place(number);
        let known = self.0.get(chunk).ok_or(Shortage::Room)?;
        if known.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let before = (FIRST << chunk) * size_of::<Tag>() as u64;
        let base = match memory::map(before) {
            Ok(base) => base,
            // Where there is room for it once, another thread may have been first.
            Err(_) if known.load(Ordering::Relaxed) != 0 => return Ok(()),
            Err(shortage) => return Err(shortage),
        };
        sys::prefer_huge_pages(base, before);
        let new = base.wrapping_sub(before);
        if known
            .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: mapped above, and another thread's is used in its stead.
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

/// The chunk of a number, and where it stands from the chunk's address on, in tags.
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
