//! The result of a walk in the form that the ledger takes.

use super::outcome::Walk;
use crate::code::rules::RULES;
use crate::code::successors;

/// The path of a walk.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    /// The function's id.
    pub function: u32,
    /// The walk.
    pub walk: &'a Walk,
    /// The return addresses, the innermost first. Not used if the walk has sites.
    pub frames: *const u64,
    /// The sites if the walk has them, as [`Walk::has_sites`] says: four in each word, the last one
    /// padded with zeroes.
    pub sites: *const u64,
}

impl Path<'_> {
    /// The key in the path tree of return address `index`, the innermost first.
    ///
    /// # Safety
    /// As for [`Path::frame`].
    #[inline(always)]
    pub unsafe fn site(&self, index: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.walk.has_sites {
                RULES.site(self.sites.cast::<u16>().add(index).read())
            } else {
                successors::site(self.frames.add(index).read())
            }
        }
    }

    /// The address of the sites of a walk with sites, otherwise that of the frames.
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
    /// The walk has more than `index` frames, and its walker has made no other walk since.
    #[inline(always)]
    pub unsafe fn frame(&self, index: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.walk.has_sites {
                RULES.address(self.sites.cast::<u16>().add(index).read())
            } else {
                self.frames.add(index).read()
            }
        }
    }
}
