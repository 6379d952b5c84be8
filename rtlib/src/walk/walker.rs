//! A thread's walker: the walks it has made, and what it makes them with.

use abi::segment::RecordHead;

use super::buffers::{self, Buffers};
use super::cut::Cut;
use super::frame::StackRange;
use super::memo::{self, InEpoch, Memo, Miss, Run};
use super::outcome::{Walk, folds};
use super::path::Path;
use crate::code::epoch;

/// Stacks a thread is remembered to have run on.
const STACKS: usize = 8;

/// What a thread walks its stack with.
#[repr(C, align(64))]
pub struct Walker {
    /// Where the stub looks for remembered walks: the stack the thread was last seen on, or nowhere.
    pub quick: StackRange,
    /// the frame pointer at the entry of the call being recorded: a word that walks read, like those of the stack.
    pub entry_fp: u64,
    /// Calls that the stub has recorded.
    pub quick_calls: u64,
    /// Walks of earlier calls.
    pub memo: Memo,
    /// What a walk came to that the stub is to record.
    pub found: Run,
    /// Stack the thread was last seen on.
    pub stack: StackRange,
    /// 1 if it is the thread's own stack: no other thread ever runs on it.
    pub(super) is_own: u64,
    /// What the walk under way writes to.
    pub(super) buffers: Buffers,
    /// The cut of the last walk that `--depth` has cut.
    pub(super) cut: Cut,
    /// 1 if a stack had more frames than [`Walker::walk_on`] has room for.
    pub(super) lacks_room: u64,
    /// The walk just made, and where it was missed, while it is being remembered.
    pub(super) last: Walk,
    /// See `last`.
    miss: Miss,
    /// Other stacks the thread has run on, and which of them is replaced next.
    pub(super) stacks: [StackRange; STACKS],
    /// See `stacks`.
    pub(super) next_stack: u64,
    /// When the bounds of a stack were last looked at again, and where they ended then.
    pub(super) renewed: u64,
    /// See `renewed`.
    pub(super) renewed_end: u64,
    /// 1 for the first thread of the process, whose control block is not at the end of its stack.
    pub(super) is_first: u64,
}

/// Bytes that a thread's walks take besides the [`Walker`].
pub const BYTES: u64 = buffers::FIRST_BYTES + memo::BYTES;

/// Bytes in them before the table of remembered walks.
pub const TABLE: u64 = buffers::FIRST_BYTES;

impl Walker {
    /// Makes zeroed memory a walker that remembers nothing: the runtime's is in the middle of a thread's.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, that nobody else uses.
    pub unsafe fn begin(&mut self, base: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            self.buffers.begin(base);
            self.memo.begin(base + TABLE);
        }
    }

    /// Makes it that of another thread, the first of its process or not.
    pub fn renew(&mut self, is_first: bool) {
        // The stacks known so far may be gone, and those of this thread end elsewhere.
        let nowhere = StackRange { low: 0, high: 0 };
        self.stack = nowhere;
        self.stacks = [nowhere; STACKS];
        self.is_first = u64::from(is_first);
        self.set_quick();
    }

    /// Tells the stub where to look for remembered walks.
    #[inline(always)]
    pub(super) fn set_quick(&mut self) {
        let StackRange { low, high } = self.stack;
        let low = if self.memo.is_resting() {
            u64::MAX
        } else {
            low
        };
        // Volatile: a vector register would do for both.
        // SAFETY: two fields of our own.
        unsafe {
            (&raw mut self.quick.low).write_volatile(low);
            (&raw mut self.quick.high).write_volatile(high);
        }
    }

    /// Whether both addresses lie on one stack that the thread is known to have run on.
    pub fn is_one_stack(&self, a: u64, b: u64) -> bool {
        let holds_both = |stack: &StackRange| stack.holds(a) && stack.holds(b);
        holds_both(&self.stack) || self.stacks.iter().any(holds_both)
    }

    /// Whether `found` could be set for the call of `function` whose return address is at `slot`: a walk of it is
    /// remembered, with its record. The stub asks for it where its own code could not.
    ///
    /// # Safety
    /// `slot` is on the calling thread's current stack, and the walker is its.
    #[inline(always)]
    pub unsafe fn recall(&mut self, function: InEpoch, slot: u64) -> bool {
        if self.memo.is_resting() {
            return false;
        }
        // SAFETY: the caller's promise.
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

    /// Makes the walk of a call, to be found as [`Walker::last_path`] where the words read have determined it.
    ///
    /// # Safety
    /// As for [`Walker::recall`]; `entry_fp` is set.
    #[inline(always)]
    pub unsafe fn walk_determined(&mut self, function: u32, slot: u64) -> bool {
        // SAFETY: the caller's promise.
        match unsafe { self.walk_by_rules(function, slot, self.entry_fp) } {
            Ok(walk) if walk.is_determined => {
                self.last = walk;
                true
            }
            _ => false,
        }
    }

    /// The path just walked.
    #[inline(always)]
    pub fn last_path(&self, function: u32) -> Path<'_> {
        self.path(function, &self.last)
    }

    /// Folds it, where the user wants that.
    ///
    /// # Safety
    /// It has not been folded yet.
    #[inline(always)]
    pub unsafe fn fold_last(&mut self, function: u32) {
        if folds() {
            // SAFETY: the caller's promise.
            unsafe { self.fold_it(function) };
        }
    }

    /// The same in a function of its own: its callers then use less of the stack.
    #[cold]
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    unsafe fn fold_it(&mut self, function: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.buffers.fold(function, &mut self.last) };
    }

    /// Folds recursion on a path, where the user wants that.
    ///
    /// # Safety
    /// It is the last walk, and not folded yet.
    #[inline(always)]
    pub unsafe fn fold(&mut self, function: u32, walk: &mut Walk) {
        if folds() {
            // SAFETY: the caller's promise.
            unsafe { self.buffers.fold(function, walk) };
        }
    }

    /// Words that the walk just made has read.
    #[inline(always)]
    pub fn words(&self) -> u64 {
        self.last.reads
    }

    /// Remembers the walk just made, whose path has the record `known`, for calls like this one, which take `cost`, and has
    /// the stub record this call by `found`.
    ///
    /// # Safety
    /// The walk has just left its reads.
    #[inline(always)]
    pub unsafe fn remember(&mut self, known: &'static RecordHead, cost: u64) {
        let was_resting = self.memo.is_resting();
        if was_resting {
            self.memo.rest(self.quick_calls);
        } else {
            // SAFETY: the caller's promise.
            let reads = unsafe { self.buffers.reads(self.last.reads) };
            // Where there is no room for it, the next one like it comes here again.
            let (stack, calls) = (self.last.stack, self.quick_calls);
            self.memo
                .remember(&self.miss, reads, stack, known, cost, calls);
        }
        if self.memo.is_resting() != was_resting {
            self.set_quick();
        }
        self.found.set(self.last.stack, known, cost);
    }

    /// A path as a walk has left it.
    #[inline(always)]
    pub fn path<'a>(&self, function: u32, walk: &'a Walk) -> Path<'a> {
        Path {
            function,
            walk,
            frames: self.buffers.frames,
            sites: self.buffers.sites.cast(),
        }
    }

    /// The walk just made.
    pub fn last_walk(&self) -> &Walk {
        &self.last
    }
}
