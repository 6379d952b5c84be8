//! The output of a walk: return addresses, the numbers of their rules, and the words read.

use core::mem::size_of;

use abi::shortage::Shortage;

use super::fold;
use super::memo::Read;
use super::outcome::{Walk, begin_hash};
use crate::code::rules::RULES;
use crate::os::{hash, memory};

/// Initial capacity in frames.
const FIRST: u64 = 512;
/// Maximum capacity in frames, a power of two. Deeper calls count as overflow.
pub const MAX_FRAMES: u64 = 1 << 20;

/// Maximum number of words read per frame: its return address, the frame pointer that leads to it,
/// and for a realigned frame its canonical frame address.
const READS: u64 = 3;
/// Additional capacity for sites, for padding the last word.
const MORE_SITES: u64 = 4;

/// Bytes of the buffers at first.
pub const FIRST_BYTES: u64 = bytes(FIRST);

/// Bytes of buffers with a capacity of `frames` frames.
const fn bytes(frames: u64) -> u64 {
    frames * 8
        + reads_bytes(frames)
        + fold::buckets(frames) * size_of::<u32>() as u64
        + ((frames + MORE_SITES) * size_of::<u16>() as u64).next_multiple_of(16)
}

/// Bytes of the words read, in buffers with a capacity of `frames` frames.
const fn reads_bytes(frames: u64) -> u64 {
    (frames * READS + 1) * size_of::<Read>() as u64
}

/// A walker's buffers.
#[repr(C)]
pub struct Buffers {
    /// Return addresses of the current walk.
    pub frames: *mut u64,
    /// Capacity in frames.
    pub capacity: u64,
    /// The sites of the current walk: the number of each return address's rule. The capacity is
    /// that of `frames` and four more.
    pub sites: *mut u16,
    /// Words that the current walk has read: room for [`READS`] per frame and one more.
    pub reads: *mut Read,
    /// Hash table for folding recursion: [`fold::buckets`] for all frames that fit.
    folding: *mut u32,
}

impl Buffers {
    /// Uses the [`FIRST_BYTES`] bytes at `base` as the buffers.
    ///
    /// # Safety
    /// The memory has no other user, and is aligned to 8.
    pub unsafe fn begin(&mut self, base: u64) {
        self.take(base, FIRST);
    }

    /// Uses the [`bytes`] bytes at `base` as the buffers, with a capacity of `frames` frames, a
    /// power of two.
    fn take(&mut self, base: u64, frames: u64) {
        self.frames = base as *mut u64;
        self.capacity = frames;
        let reads = base + frames * 8;
        self.reads = reads as *mut Read;
        let folding = reads + reads_bytes(frames);
        self.folding = folding as *mut u32;
        self.sites = (folding + fold::buckets(frames) * size_of::<u32>() as u64) as *mut u16;
    }

    /// Makes room for more frames. The contents are lost.
    ///
    /// # Errors
    /// There is no memory, or the maximum capacity is reached.
    pub fn grow(&mut self) -> Result<(), Shortage> {
        let capacity = (self.capacity * 4).min(MAX_FRAMES);
        if capacity == self.capacity {
            return Err(Shortage::Depth);
        }
        let old = self.frames as u64;
        let new = memory::map(bytes(capacity))?;
        self.take(new, capacity);
        // SAFETY: no pointers to the old buffers are left. `unmap` ignores the initial ones, which
        // are not a mapping of their own.
        unsafe { memory::unmap(old) };
        Ok(())
    }

    /// The `count` words that the last walk has read.
    ///
    /// # Safety
    /// The last walk has read as many words.
    #[inline(always)]
    pub unsafe fn reads(&self, count: u64) -> &'static [Read] {
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.reads, count as usize) }
    }

    /// Pads the last word of the sites before `end` with zeroes, because sites are compared four at
    /// a time.
    ///
    /// # Safety
    /// `end` is at most as many sites after the first one as there is room for frames.
    #[inline(always)]
    pub unsafe fn end_sites(end: *mut u16) {
        // SAFETY: there is room for four more sites than frames.
        unsafe { end.cast::<u64>().write_unaligned(0) };
    }

    /// Folds recursion on the path of `walk`, a walk of a call of `function`, and updates its
    /// length and hash.
    ///
    /// # Safety
    /// The walk is the last one, and has not been folded.
    #[inline(always)]
    pub unsafe fn fold(&mut self, function: u32, walk: &mut Walk) {
        // SAFETY: guaranteed by the caller; the table is large enough for all frames that fit. The
        // calls are sequential instead of nested, to use less of the stack.
        unsafe {
            if walk.has_sites {
                self.fill_frames(walk.len);
            }
            walk.len = fold::fold(self.frames, walk.len, self.folding);
            self.tell_folded(function, walk);
        }
    }

    /// Stores the return addresses of the first `len` sites in `frames`.
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    unsafe fn fill_frames(&mut self, len: u64) {
        for at in 0..len as usize {
            // SAFETY: there is room for as many frames as sites.
            unsafe {
                let site = self.sites.add(at).read();
                self.frames.add(at).write(RULES.address(site));
            }
        }
    }

    /// Computes the hash and the sites of the frames.
    #[cold]
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    unsafe fn tell_folded(&mut self, function: u32, walk: &mut Walk) {
        // SAFETY: there is room for as many sites as frames.
        unsafe {
            walk.hash = begin_hash(function);
            for at in 0..walk.len as usize {
                let frame = self.frames.add(at).read();
                walk.hash = hash::mix(walk.hash, frame);
                if walk.has_sites {
                    self.sites.add(at).write_volatile(RULES.get(frame).1);
                }
            }
            walk.hash = hash::mix(walk.hash, u64::from(walk.root));
            Self::end_sites(self.sites.add(walk.len as usize));
        }
    }
}
