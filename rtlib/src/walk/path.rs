//! What a walk has found, as the ledger takes it.

use super::outcome::Walk;
use crate::code::rules::RULES;
use crate::code::successors;

/// A path as a walk has left it.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    /// The function's id.
    pub function: u32,
    /// How the walk was.
    pub walk: &'a Walk,
    /// Its return addresses, the innermost first; not used where the walk has sites.
    pub frames: *const u64,
    /// Its sites, where the walk has those: four in each word, the last one filled up with zeros.
    pub sites: *const u64,
}

impl Path<'_> {
    /// What the tree has of return address number `index`, the innermost first.
    ///
    /// # Safety
    /// As for [`Path::frame`].
    #[inline(always)]
    pub unsafe fn site(&self, index: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            if self.walk.has_sites {
                RULES.site(self.sites.cast::<u16>().add(index).read())
            } else {
                successors::site(self.frames.add(index).read())
            }
        }
    }

    /// Its sites, where the walk has those, else its frames.
    #[inline(always)]
    pub fn keys(&self) -> *const u64 {
        if self.walk.has_sites {
            self.sites
        } else {
            self.frames
        }
    }

    /// Return address number `index`, the innermost first.
    ///
    /// # Safety
    /// The walk has found more frames than that, and the walker that they are with has made none since.
    #[inline(always)]
    pub unsafe fn frame(&self, index: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            if self.walk.has_sites {
                RULES.address(self.sites.cast::<u16>().add(index).read())
            } else {
                self.frames.add(index).read()
            }
        }
    }
}
