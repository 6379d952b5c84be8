//! A thread's walker: its stacks, its buffers, and its cache of walks.

use core::sync::atomic::Ordering;

use abi::image::{BY_CALLERS, BY_WALK};
use abi::segment::RecordHead;

use super::buffers::{self, Buffers};
use super::cut::Cut;
use super::filter::ELSEWHERE;
use super::frame::StackRange;
use super::memo::{self, InEpoch, Memo, Miss, Run};
use super::outcome::{Walk, folds};
use super::path::Path;
use crate::code::epoch;
use crate::os::parameters::ipath_parameters;

/// The number of stacks kept per thread.
const STACKS: usize = 8;

/// The state with which a thread walks its stack.
#[repr(C, align(64))]
pub struct Walker {
    /// The stack on which the stub looks up cached walks: the one that the thread was last seen on,
    /// or an empty range.
    pub quick: StackRange,
    /// The frame pointer at the entry of the current call. Walks read it like a word of the stack.
    pub entry_fp: u64,
    /// Calls recorded by the stub.
    pub quick_calls: u64,
    /// The cache of walks.
    pub memo: Memo,
    /// The result of a walk, for the stub to record.
    pub found: Run,
    /// The stack on which the thread was last seen.
    pub stack: StackRange,
    /// 1 if `stack` is the thread's own stack: no other thread ever runs on it.
    pub(super) is_own: u64,
    /// The output of the current walk.
    pub(super) buffers: Buffers,
    /// The cut of the last walk that `--depth` has cut.
    pub(super) cut: Cut,
    /// 1 if a stack had more frames than [`Walker::walk_on`] has room for.
    pub(super) lacks_room: u64,
    /// The last walk, while it is being cached.
    pub(super) last: Walk,
    /// The point at which the lookup of the last walk missed.
    miss: Miss,
    /// Other stacks on which the thread has run.
    pub(super) stacks: [StackRange; STACKS],
    /// The index in `stacks` to replace next.
    pub(super) next_stack: u64,
    /// The time when the bounds of a stack were last checked again, in ticks.
    pub(super) renewed: u64,
    /// The end address of the stack whose bounds were last checked again.
    pub(super) renewed_end: u64,
    /// 1 for the first thread of the process, whose control block is not at the end of its stack.
    pub(super) is_first: u64,
}

/// Bytes of a thread's walks, in addition to [`Walker`].
pub const BYTES: u64 = buffers::FIRST_BYTES + memo::BYTES;

/// Offset of the cache of walks in the [`BYTES`] of a thread's walks, in bytes.
pub const TABLE: u64 = buffers::FIRST_BYTES;

impl Walker {
    /// Turns zeroed memory into an empty walker. It works in place, because the runtime's is inside
    /// a larger structure.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, without another user.
    pub unsafe fn begin(&mut self, base: u64) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.buffers.begin(base);
            self.memo.begin(base + TABLE);
        }
    }

    /// Resets the walker for another thread. `is_first` is true for the first thread of the
    /// process.
    pub fn renew(&mut self, is_first: bool) {
        // The known stacks may be gone, and the stacks of this thread have other ends.
        let nowhere = StackRange { low: 0, high: 0 };
        self.stack = nowhere;
        self.stacks = [nowhere; STACKS];
        self.is_first = u64::from(is_first);
        self.set_quick();
    }

    /// Sets the range in which the stub looks up cached walks.
    #[inline(always)]
    pub(super) fn set_quick(&mut self) {
        let StackRange { low, high } = self.stack;
        let is_looked_up = match ipath_parameters.path.load(Ordering::Relaxed) {
            BY_WALK => true,
            // Without a walk, it must be certain to whom the stack belongs.
            BY_CALLERS => self.is_own != 0,
            _ => false,
        };
        let low = if self.memo.is_resting() || !is_looked_up {
            u64::MAX
        } else {
            low
        };
        // Volatile: otherwise both words would be stored with a vector register.
        // SAFETY: two fields of `self`.
        unsafe {
            (&raw mut self.quick.low).write_volatile(low);
            (&raw mut self.quick.high).write_volatile(high);
        }
    }

    /// True if both addresses are on one known stack of the thread.
    pub fn is_one_stack(&self, a: u64, b: u64) -> bool {
        let holds_both = |stack: &StackRange| stack.holds(a) && stack.holds(b);
        holds_both(&self.stack) || self.stacks.iter().any(holds_both)
    }

    /// True if the thread was last seen on its own stack, or on its alternate signal stack.
    #[inline(always)]
    pub fn is_own(&self) -> bool {
        self.is_own != 0
    }

    /// Looks up the walk of a call of `function` whose return address is at `slot`. If it is
    /// cached, sets `found` and returns true. Otherwise, unless caching is paused, keeps the point
    /// at which the lookup missed, for [`Walker::remember`]. The stub calls this if its own code
    /// cannot do it.
    ///
    /// # Safety
    /// `slot` is on the current stack of the calling thread, which owns the walker.
    #[inline(always)]
    pub unsafe fn recall(&mut self, function: InEpoch, slot: u64) -> bool {
        if self.memo.is_resting() {
            return false;
        }
        // SAFETY: guaranteed by the caller.
        match unsafe { self.memo.find(function, slot) } {
            Err(miss) => self.miss = miss,
            Ok(run) => {
                let (stack, record, cost) = (run.stack, run.record, run.cost);
                self.found.set(stack, record, cost);
                return true;
            }
        }
        false
    }

    /// Forgets the walks of a function's calls with their return address at `slot`.
    pub fn forget_call(&mut self, function: u32, slot: u64) {
        let function = InEpoch::of(function, epoch::number());
        self.memo.forget_call(function, slot);
    }

    /// Makes the walk of a call. If the words read determine it, keeps it as the last walk and
    /// returns true. False if only the slow path can make the walk.
    ///
    /// # Safety
    /// As for [`Walker::recall`]; `entry_fp` is set.
    #[inline(always)]
    pub unsafe fn walk_determined(&mut self, function: u32, slot: u64) -> bool {
        // SAFETY: guaranteed by the caller.
        match unsafe { self.walk_by_rules(function, slot, self.entry_fp) } {
            Ok(walk) if walk.is_determined => {
                self.last = walk;
                true
            }
            _ => false,
        }
    }

    /// Makes the last walk one whose calls are not recorded.
    #[inline(always)]
    pub fn leave_out(&mut self) {
        self.last.stack = ELSEWHERE;
    }

    /// Forgets the words of the last walk, of a call whose path is known without them.
    #[inline(always)]
    pub fn forget_words(&mut self) {
        self.last.reads = 0;
    }

    /// Sets `found` for a call on the stack of the last walk, which is not cached.
    #[inline(always)]
    pub fn find(&mut self, known: &'static RecordHead, cost: u64) {
        self.found.set(self.last.stack, known, cost);
    }

    /// The path of the last walk.
    #[inline(always)]
    pub fn last_path(&self, function: u32) -> Path<'_> {
        self.path(function, &self.last)
    }

    /// Folds the last walk, a call of `function`, if recursion is to be folded
    /// (`--collapse-recursion`).
    ///
    /// # Safety
    /// It has not been folded yet.
    #[inline(always)]
    pub unsafe fn fold_last(&mut self, function: u32) {
        if folds() {
            // SAFETY: guaranteed by the caller.
            unsafe { self.fold_it(function) };
        }
    }

    /// Folds the last walk, a call of `function`. A separate function, so that its callers use less
    /// of the stack.
    #[cold]
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    unsafe fn fold_it(&mut self, function: u32) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.buffers.fold(function, &mut self.last) };
    }

    /// Folds recursion on the path of `walk` if the user wants that.
    ///
    /// # Safety
    /// It is the last walk, and has not been folded yet.
    #[inline(always)]
    pub unsafe fn fold(&mut self, function: u32, walk: &mut Walk) {
        if folds() {
            // SAFETY: guaranteed by the caller.
            unsafe { self.buffers.fold(function, walk) };
        }
    }

    /// The number of words read by the last walk.
    #[inline(always)]
    pub fn words(&self) -> u64 {
        self.last.reads
    }

    /// Caches the last walk for calls like this one. `known` is the record of its path, and `cost`
    /// the overhead of the calls. Sets `found` for the stub to record this call.
    ///
    /// # Safety
    /// The buffers contain the reads of the last walk. The walk has just left its reads.
    #[inline(always)]
    pub unsafe fn remember(&mut self, known: &'static RecordHead, cost: u64) {
        let was_resting = self.memo.is_resting();
        if was_resting {
            self.memo.rest(self.quick_calls);
        } else {
            // SAFETY: guaranteed by the caller.
            let reads = unsafe { self.buffers.reads(self.last.reads) };
            // Without room, the next such call comes here again.
            let (stack, calls) = (self.last.stack, self.quick_calls);
            self.memo
                .remember(&self.miss, reads, stack, known, cost, calls);
        }
        if self.memo.is_resting() != was_resting {
            self.set_quick();
        }
        self.found.set(self.last.stack, known, cost);
    }

    /// The path of a walk.
    #[inline(always)]
    pub fn path<'a>(&self, function: u32, walk: &'a Walk) -> Path<'a> {
        Path {
            function,
            walk,
            frames: self.buffers.frames,
            sites: self.buffers.sites.cast(),
        }
    }

    /// The last walk.
    pub fn last_walk(&self) -> &Walk {
        &self.last
    }
}
