//! Walks frame by frame with rules of one word, which know only the stack pointer and fp.

use core::mem::offset_of;

use abi::cause::Cause;
use abi::segment::{ROOT_COMPLETE, ROOT_CUT};
use unwind::{At, Step, Words, step};

use super::buffers::Buffers;
use super::frame::stopped_at;
use super::memo::Read;
use super::outcome::{Obstacle, Walk, depth_limit};
use super::walker::Walker;
use crate::arch::likely;
use crate::code::rules::RULES;
use crate::os::hash;

impl Walker {
    /// Walks from a call of `function` with cached rules. `slot` is the address of the probed
    /// function's return address, `fp` the frame pointer register at its entry. Otherwise returns
    /// the obstacle that stopped the walk.
    ///
    /// # Safety
    /// The walker belongs to the calling thread, and `slot` is its stack pointer.
    #[inline(always)]
    pub unsafe fn walk_by_rules(
        &mut self,
        function: u32,
        slot: u64,
        fp: u64,
    ) -> Result<Walk, Obstacle> {
        let high = self.stack.high;
        if !self.stack.holds(slot) {
            return Err(Obstacle::Stack);
        }
        let first = self.buffers.sites;
        let room = self.buffers.capacity.min(depth_limit()) as usize;
        let mut walk = Walk::begin(function, high);
        walk.is_determined = true;
        walk.has_sites = true;
        // SAFETY: stack words are read between the stack pointer and the end of its mapping, which
        // is readable memory. There is room for `room` sites and their reads.
        unsafe {
            let mut site_at = first;
            let sites_end = site_at.add(room);
            let mut reads = Reads {
                next: self.buffers.reads,
                fp_at: (&raw const *self).byte_add(offset_of!(Self, entry_fp)) as u64,
                fp,
            };
            let pc = (slot as *const u64).read();
            reads.note(slot, pc);
            let mut at = At { pc, sp: slot + 8 };
            loop {
                if site_at == sites_end {
                    if (site_at.offset_from(first) as u64) < depth_limit() {
                        return Err(Obstacle::Depth);
                    }
                    walk.root = ROOT_CUT;
                    self.cut.set_place(at.pc, at.sp);
                    self.cut.set_frame_pointer(reads.fp_at, reads.fp);
                    break;
                }
                let (word, site) = RULES.get(at.pc);
                site_at.write(site);
                site_at = site_at.add(1);
                walk.hash = hash::mix(walk.hash, at.pc);
                match step(word, at, high, &mut reads) {
                    Step::Caller(caller) => at = caller,
                    Step::Root => {
                        walk.root = ROOT_COMPLETE;
                        walk.stack = at.sp;
                        walk.is_told = true;
                        break;
                    }
                    Step::Stop(cause) => {
                        walk.root = cause.node();
                        let is_end = at.pc == 0;
                        if is_end || self.is_own == 0 {
                            walk.stack = stopped_at(at.sp);
                            walk.is_told = true;
                        }
                        if is_end {
                            // The return address 0 is not a frame.
                            site_at = site_at.sub(1);
                        }
                        break;
                    }
                    Step::Astray => {
                        walk.root = Cause::OffStack.node();
                        walk.is_determined = false;
                        if self.is_own == 0 {
                            walk.stack = stopped_at(at.sp);
                            walk.is_told = true;
                        }
                        break;
                    }
                    Step::Full => return Err(Obstacle::Full),
                    Step::Unknown => {
                        return Err(Obstacle::Rule(at.pc, reads.fp.wrapping_sub(at.sp)));
                    }
                }
            }
            Buffers::end_sites(site_at);
            walk.len = site_at.offset_from(first) as u64;
            walk.reads = reads.next.offset_from(self.buffers.reads) as u64;
        }
        walk.hash = hash::mix(walk.hash, u64::from(walk.root));
        Ok(walk)
    }

    /// Continues the last walk from its cut to identify its stack. False if only the slow path can
    /// do it. `enclosing` returns the stack of the activation with this slot, if there is one.
    ///
    /// With `keeps`, the words read become part of the walk. They then prove the stack each time
    /// the walk is found again. Without it, the stack is known by other means, and cached walks
    /// stay as short as the path.
    ///
    /// # Safety
    /// The walker belongs to the calling thread and has made no other walk since.
    #[inline(always)]
    pub unsafe fn walk_on(
        &mut self,
        keeps: bool,
        mut enclosing: impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        let high = self.stack.high;
        let mut at = At {
            pc: self.cut.pc,
            sp: self.cut.sp,
        };
        // SAFETY: as for `walk_by_rules`; the buffers have room for the words of as many more
        // frames as fit.
        unsafe {
            let mut reads = Reads {
                next: self.buffers.reads.add(self.last.reads as usize),
                fp_at: self.cut.fp_at,
                fp: self.cut.fp,
            };
            let first = reads.next;
            let mut room = self.buffers.capacity - self.last.len;
            loop {
                if let Some(stack) = enclosing(at.sp - 8) {
                    (self.last.stack, self.last.is_told) = (stack, false);
                    return true;
                }
                if !keeps {
                    reads.next = first;
                } else if room == 0 {
                    self.lacks_room = 1;
                    return false;
                }
                room = room.wrapping_sub(1);
                let (word, _) = RULES.get(at.pc);
                let is_root = match step(word, at, high, &mut reads) {
                    Step::Caller(caller) => {
                        at = caller;
                        continue;
                    }
                    Step::Root => true,
                    Step::Stop(_) => false,
                    Step::Astray | Step::Full | Step::Unknown => return false,
                };
                if is_root {
                    (self.last.stack, self.last.is_told) = (at.sp, true);
                } else if self.is_own == 0 || at.pc == 0 {
                    (self.last.stack, self.last.is_told) = (stopped_at(at.sp), true);
                }
                if keeps {
                    self.last.reads = reads.next.offset_from(self.buffers.reads) as u64;
                }
                return true;
            }
        }
    }
}

/// The words that a walk has read and that its result depends on.
struct Reads {
    /// The next entry to write. There is room for the reads of one more frame.
    next: *mut Read,
    /// The address from which the frame pointer was read; 0 if that word is already noted.
    fp_at: u64,
    /// The frame pointer.
    fp: u64,
}

impl Words for Reads {
    #[inline(always)]
    fn word(&mut self, at: u64) -> Option<u64> {
        // SAFETY: a word of the stack, and room to note it. Values noted are only compared.
        unsafe {
            // Most walks read the same address as the last walk at this point.
            let at = likely::address(at, self.next.cast());
            let value = (at as *const u64).read();
            self.note(at, value);
            Some(value)
        }
    }

    #[inline(always)]
    fn frame_pointer(&mut self) -> u64 {
        if self.fp_at != 0 {
            // SAFETY: there is room for it.
            unsafe { self.note(self.fp_at, self.fp) };
            self.fp_at = 0;
        }
        self.fp
    }

    #[inline(always)]
    fn load_frame_pointer(&mut self, at: u64) -> Option<()> {
        self.fp_at = at;
        // SAFETY: a word of the stack.
        self.fp = unsafe { (at as *const u64).read() };
        Some(())
    }
}

impl Reads {
    /// Adds the word at address `at`, which has this value.
    ///
    /// # Safety
    /// There is room for one more.
    #[inline(always)]
    unsafe fn note(&mut self, at: u64, value: u64) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.next.write(Read { at, value });
            self.next = self.next.add(1);
        }
    }
}
