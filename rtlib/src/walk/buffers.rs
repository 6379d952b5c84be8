//! What a walk writes to: return addresses, the numbers of their rules, the words it has read.

use core::mem::size_of;

use abi::shortage::Shortage;

use super::fold;
use super::memo::Read;
use super::outcome::{Walk, begin_hash};
use crate::code::rules::RULES;
use crate::os::{hash, memory};

/// Frames a walk can hold at first.
const FIRST: u64 = 512;
/// And after growing, a power of two; deeper calls count as overflow.
pub const MOST: u64 = 1 << 20;

/// Words that one frame takes: its return address, the frame pointer that leads to it, and where the frame was
/// realigned its canonical frame address.
const READS: u64 = 3;
/// More sites than frames: what fills up the last word.
const MORE_SITES: u64 = 4;

/// Bytes that are there at first.
pub const FIRST_BYTES: u64 = bytes(FIRST);

/// Bytes for a walk of `frames` frames.
const fn bytes(frames: u64) -> u64 {
    frames * 8
        + reads_bytes(frames)
        + fold::buckets(frames) * size_of::<u32>() as u64
        + ((frames + MORE_SITES) * size_of::<u16>() as u64).next_multiple_of(16)
}

const fn reads_bytes(frames: u64) -> u64 {
    (frames * READS + 1) * size_of::<Read>() as u64
}

/// A walker's buffers.
#[repr(C)]
pub struct Buffers {
    /// Return addresses of the walk under way.
    pub frames: *mut u64,
    /// How many fit.
    pub capacity: u64,
    /// The numbers of their rules, four more than that.
    pub sites: *mut u16,
    /// Words that the walk under way has read: room for [`READS`] a frame and one.
    pub reads: *mut Read,
    /// Where recursion is folded: [`fold::buckets`] for all frames that fit.
    folding: *mut u32,
}

impl Buffers {
    /// Takes [`FIRST_BYTES`] at `base`.
    ///
    /// # Safety
    /// They are nobody else's, and aligned to 8.
    pub unsafe fn begin(&mut self, base: u64) {
        self.take(base, FIRST);
    }

    /// Takes [`bytes`] at `base` for so many frames, a power of two.
    fn take(&mut self, base: u64, frames: u64) {
        self.frames = base as *mut u64;
        self.capacity = frames;
        let reads = base + frames * 8;
        self.reads = reads as *mut Read;
        let folding = reads + reads_bytes(frames);
        self.folding = folding as *mut u32;
        self.sites = (folding + fold::buckets(frames) * size_of::<u32>() as u64) as *mut u16;
    }

    /// Makes room for more frames.
    ///
    /// # Errors
    /// There is no memory for them, or there are as many as can be.
    pub fn grow(&mut self) -> Result<(), Shortage> {
        let capacity = (self.capacity * 4).min(MOST);
        if capacity == self.capacity {
            return Err(Shortage::Depth);
        }
        let old = self.frames as u64;
        let new = memory::map(bytes(capacity))?;
        self.take(new, capacity);
        // SAFETY: nothing leads to the old ones any more; those that a thread has at first are no mapping of their
        // own and stay.
        unsafe { memory::unmap(old) };
        Ok(())
    }

    /// The words that a walk has read, of which there are `count`.
    ///
    /// # Safety
    /// The walk is the last, and has read as many.
    #[inline(always)]
    pub unsafe fn reads(&self, count: u64) -> &'static [Read] {
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts(self.reads, count as usize) }
    }

    /// Fills up the last word of the sites before `end`: they are compared four at a time.
    ///
    /// # Safety
    /// `end` is at most as many sites from the first as frames fit.
    #[inline(always)]
    pub unsafe fn end_sites(end: *mut u16) {
        // SAFETY: there is room for four more sites than frames.
        unsafe { end.cast::<u64>().write_unaligned(0) };
    }

    /// Folds recursion on the path of the last walk.
    ///
    /// # Safety
    /// It is that, and has not been folded.
    #[inline(always)]
    pub unsafe fn fold(&mut self, function: u32, walk: &mut Walk) {
        // SAFETY: the caller's promise; the table is for as many frames as fit. One after the other instead of
        // one inside the other, to use less of the stack.
        unsafe {
            if walk.has_sites {
                self.fill_frames(walk.len);
            }
            walk.len = fold::fold(self.frames, walk.len, self.folding);
            self.tell_folded(function, walk);
        }
    }

    /// Puts the return addresses of as many sites into `frames`.
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

    /// Makes hash and sites those of the frames.
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
