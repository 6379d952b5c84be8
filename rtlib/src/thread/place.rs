//! A thread's place: all data that the runtime has of the thread.

use core::mem::{offset_of, size_of};
use core::ptr;
use core::sync::atomic::Ordering;

use abi::schema::way;
use abi::segment::RecordHead;
use abi::shortage::Shortage;

use super::mark::Mark;
use crate::calls::meter::Meter;
use crate::calls::{self, Calls};
use crate::ledger::{self, Ledger, areas};
use crate::os::memory;
use crate::os::parameters;
use crate::os::sys::AlternateStack;
use crate::os::thread_pointer::{thread_pointer, tid_offset};
use crate::walk::{self, Walker};
use unwind::Saved;

/// Bytes of a thread's private stack.
const STACK: u64 = 96 * 1024;

/// A thread. Only the thread itself accesses it. A signal handler on the thread accesses only
/// `busy`, which excludes it.
#[repr(C)]
pub struct Thread {
    /// Address of the return address of the call being recorded; 0 while none is.
    pub busy: u64,
    /// The offset from the thread pointer to the word by which the thread recognizes its place: the
    /// id in its control block, or if that is not known the result of `word_of`.
    pub tid_from_tp: u64,
    /// The value of the word at `tid_from_tp` while the place belongs to the thread. `u32::MAX`
    /// until the thread has set up the whole place.
    pub tid: u32,
    /// 1 if no word changes when the thread ends, but system calls are allowed. The slow path then
    /// asks the kernel each time.
    pub(super) is_unmarked: u32,
    /// The time-stamp counter when the exit handled by the slow path was reached.
    pub now: u64,
    /// The application's stack pointer while the slow path runs.
    pub saved_sp: u64,
    /// The thread's calls that have not ended.
    pub calls: Calls,
    /// Top of the private stack, aligned to 16.
    pub private_stack: u64,
    /// The application's signal mask while the slow path runs, or while a stale mark is replaced.
    pub signal_mask: u64,
    /// The owner of the place, under the lock of [`super::registry`].
    pub(super) owner: Owner,
    /// The application's callee-saved registers while the slow path runs.
    pub saved: Saved,
    /// The state for walking the thread's stack.
    pub walker: Walker,
    /// The thread's records.
    pub ledger: Ledger,
    /// The alternate signal stack when last queried. It is here to save room on the application's
    /// stack.
    pub alternate: AlternateStack,
    /// The thread that was listed before this one; null for the first.
    pub(super) listed_before: *mut Thread,
    /// The value of `busy` after the slow path, usually 0.
    pub busy_after: u64,
    /// The state for measuring the thread's calls.
    pub meter: Meter,
    /// The record of calls on paths that are not recorded. Nobody reads it.
    pub elsewhere: RecordHead,
    /// A temporary for the assembly fast paths.
    pub scratch: u64,
    /// Reports the end of the thread, if its id is not known by its thread pointer.
    pub(super) mark: Mark,
}

/// A thread id that no thread has.
pub(super) const NOBODY: u32 = u32::MAX;

/// The owner of a place.
#[repr(C)]
pub(super) struct Owner {
    /// The owner's thread pointer.
    pub tp: u64,
    /// The word at the offset of the thread id. It differs from the kernel's id if the C library
    /// does not know the thread: raw clone(2).
    pub tid: u32,
    /// The owner's thread id according to the kernel.
    pub kernel_tid: u32,
    /// The id of the owner's process.
    pub process: u32,
    /// [`NOBODY`] once the place has an owner.
    pub nobody: u32,
}

impl Owner {
    /// True if the thread's id is at an offset from its thread pointer. Otherwise its place is
    /// recognized by a mark.
    pub fn has_id(&self) -> bool {
        tid_offset().is_some() && self.tid == self.kernel_tid
    }
}

/// Bytes before the thread in its mapping. Data that every call stores and data that every call
/// reads must be at different offsets within a page; the latter is at the start of a page.
/// Otherwise processors assume a dependency at first ("4K aliasing", Intel's optimization manual
/// 15.8).
const HEAD: u64 = 1024;

const _: () = assert!(HEAD as usize + offset_of!(Thread, saved_sp) == abi::image::THREAD_SAVED_SP);

/// A call uses one line of the thread's memory, and the line in which the walker begins.
const _: () = assert!(
    offset_of!(Thread, calls) + offset_of!(Calls, overhead) + 8 <= LINE
        && align_of::<Thread>() == LINE
        && HEAD.is_multiple_of(LINE as u64)
);

/// True if `thread`, the place at the calling thread's thread pointer, is completely set up for the
/// calling thread. False while it has data of an earlier owner.
///
/// # Safety
/// `thread` was returned by [`super::registry::current`].
#[inline(always)]
pub unsafe fn is_same(thread: *mut Thread) -> bool {
    // SAFETY: places stay valid. The calling thread has this thread pointer, and its id is at the
    // offset that the command has found.
    unsafe {
        let at = thread_pointer().wrapping_add((*thread).tid_from_tp) as *const u32;
        at.read_volatile() == (&raw const (*thread).tid).read_volatile()
    }
}

/// The word that a thread without an id at an offset from its thread pointer compares: the mark,
/// which changes when the thread ends. Without a mark, the word always matches. If threads must be
/// told apart it never matches, so the thread takes the slow path each time.
///
/// # Safety
/// The place belongs to the caller.
pub(super) unsafe fn word_of(thread: *mut Thread) -> *const u32 {
    // SAFETY: the place belongs to the caller.
    unsafe {
        let owner = &raw const (*thread).owner;
        (*thread).mark.word().unwrap_or(
            if (*thread).is_unmarked != 0 && parameters::tells_threads_apart() {
                &raw const (*owner).nobody
            } else {
                &raw const (*owner).tid
            },
        )
    }
}

/// Makes the thread recognize its place by the present value of the word. If the word must never
/// match, it stores the thread's id.
///
/// # Safety
/// As for [`word_of`].
pub(super) unsafe fn note_word(thread: *mut Thread) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let now = match word_of(thread) {
            word if ptr::eq(word, &raw const (*thread).owner.nobody) => (*thread).owner.tid,
            word => word.read_volatile(),
        };
        (&raw mut (*thread).tid).write_volatile(now);
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes of a [`Thread`], rounded up.
const HEAD_BYTES: u64 = (size_of::<Thread>() as u64).next_multiple_of(2 * LINE as u64);

/// Offset from a thread to the memory of its list of calls, in bytes. The memory of its ledger, of
/// its walker and its private stack follow.
const CALLS: u64 = HEAD_BYTES;
const LEDGER: u64 = CALLS + calls::list::BYTES;
const WALKER: u64 = LEDGER + ledger::BYTES;
const PRIVATE_STACK: u64 = WALKER + walk::BYTES;

/// Bytes from a thread to its table of cached walks.
pub const MEMO: usize = (WALKER + walk::TABLE) as usize;

const BYTES: u64 = HEAD + PRIVATE_STACK + STACK;

const _: () = assert!(BYTES <= abi::image::RESERVE_PER_THREAD);

/// Maps memory for a place and returns its address.
///
/// # Errors
/// As for [`memory::map`].
#[inline(never)]
pub(super) fn map() -> Result<u64, Shortage> {
    memory::map(BYTES)
}

/// The place in memory at `base`.
pub(super) fn at(base: u64) -> *mut Thread {
    (base + HEAD) as *mut Thread
}

/// Turns memory returned by [`map`] into a place without an owner, with this entry in the segment.
#[inline(never)]
pub(super) fn fill(base: u64, index: u32) {
    let thread = at(base);
    let of = |part: u64| base + HEAD + part;
    // SAFETY: the parts are adjacent in memory mapped above, which is zeroed and has no other user.
    // Sizes are multiples of 8, so all parts are aligned.
    unsafe {
        (*thread).tid = NOBODY;
        let overhead = &areas::thread(index).overhead;
        calls::list::begin(&raw mut (*thread).calls, of(CALLS), overhead);
        (*thread).meter.overhead = overhead;
        (*thread).ledger.begin(of(LEDGER), index);
        (*thread).walker.begin(of(WALKER));
        (*thread)
            .elsewhere
            .way
            .store(way::COUNTED, Ordering::Relaxed);
        (*thread).private_stack = of(PRIVATE_STACK + STACK) & !0xf;
    }
}
