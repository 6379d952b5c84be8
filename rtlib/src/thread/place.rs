//! A thread's place: all that the runtime knows of it.

use core::mem::{offset_of, size_of};
use core::ptr;

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

/// One thread. Only the thread itself touches it, a signal handler on it nothing but `busy`,
/// which tells it to keep out.
#[repr(C)]
pub struct Thread {
    /// Address of the return address of the call being recorded; 0 while none is.
    pub busy: u64,
    /// The offset from the thread pointer to the word by which the thread recognizes its place: the id in
    /// its control block, or if that is not known the result of `word_of`.
    pub tid_from_tp: u64,
    /// The value of that word while the place belongs to the thread. `u32::MAX` until the thread
    /// has set up the whole place.
    pub tid: u32,
    /// 1 if no word changes when the thread ends. The slow path then asks the kernel each time.
    pub(super) is_unmarked: u32,
    /// When the exit was reached that the slow path sees to, by the time-stamp counter.
    pub now: u64,
    /// The application's stack pointer while the slow path runs.
    pub saved_sp: u64,
    /// Its calls that have not ended.
    pub calls: Calls,
    /// Top of the private stack, aligned to 16.
    pub private_stack: u64,
    /// The application's signal mask while the slow path runs, or a left mark is taken.
    pub signal_mask: u64,
    /// Whose place it is, under the lock of [`super::registry`].
    pub(super) owner: Owner,
    /// The application's callee-saved registers while the slow path runs.
    pub saved: Saved,
    /// What it walks its stack with.
    pub walker: Walker,
    /// Its records.
    pub ledger: Ledger,
    /// The alternate signal stack when it was last asked for, here to save room on the application's.
    pub alternate: AlternateStack,
    /// The thread that was listed before it.
    pub(super) listed_before: *mut Thread,
    /// What `busy` is to be after the slow path: 0 as a rule.
    pub busy_after: u64,
    /// What it measures its calls with.
    pub meter: Meter,
    /// What the hand-written ways have no register for.
    pub scratch: u64,
    /// Reports the end of the thread, if its id is not known by its thread pointer.
    pub(super) mark: Mark,
}

/// What no thread has as its id.
pub(super) const NOBODY: u32 = u32::MAX;

/// The thread that a place is given to.
#[repr(C)]
pub(super) struct Owner {
    /// Its thread pointer.
    pub tp: u64,
    /// What stands where its id is looked for. Differs from the kernel's if the C library does not know the
    /// thread: raw clone(2).
    pub tid: u32,
    /// Its id as the kernel has it, which is the same as a rule, and that of its process.
    pub kernel_tid: u32,
    /// See `kernel_tid`.
    pub process: u32,
    /// [`NOBODY`], once the place has an owner.
    pub nobody: u32,
}

impl Owner {
    /// True if the thread has its id at an offset from its thread pointer. Otherwise its place is recognized by a mark.
    pub fn has_id(&self) -> bool {
        tid_offset().is_some() && self.tid == self.kernel_tid
    }
}

/// Bytes before it in its mapping: what every call stores to shares no place in its page with what
/// every call reads, which stands at the start of one. Processors take the one for the other at first
/// ("4K aliasing", Intel's optimization manual 15.8).
const HEAD: u64 = 1024;

const _: () = assert!(HEAD as usize + offset_of!(Thread, saved_sp) == abi::image::THREAD_SAVED_SP);

/// A call uses one line of the thread's memory, and the line in which the walker begins.
const _: () = assert!(
    offset_of!(Thread, calls) + offset_of!(Calls, overhead) + 8 <= LINE
        && align_of::<Thread>() == LINE
        && HEAD.is_multiple_of(LINE as u64)
);

/// Whether all of `thread`, which is the calling thread's place, is the calling thread's: not so as long as it has
/// what another has left.
///
/// # Safety
/// `thread` came from [`super::registry::current`].
#[inline(always)]
pub unsafe fn is_same(thread: *mut Thread) -> bool {
    // SAFETY: places stay valid; the calling thread has the thread pointer, and at an offset from it the command has found the
    // id of every thread.
    unsafe {
        let at = thread_pointer().wrapping_add((*thread).tid_from_tp) as *const u32;
        at.read_volatile() == (&raw const (*thread).tid).read_volatile()
    }
}

/// The word that a thread without an id at an offset from its thread pointer compares: the mark, which
/// changes when the thread ends. Without a mark, the word always matches. If threads must be told
/// apart it never matches, so the thread takes the slow path each time.
///
/// # Safety
/// The place is the caller's.
pub(super) unsafe fn word_of(thread: *mut Thread) -> *const u32 {
    // SAFETY: the place is the caller's.
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
    // SAFETY: the caller's promise.
    unsafe {
        let now = match word_of(thread) {
            word if ptr::eq(word, &raw const (*thread).owner.nobody) => (*thread).owner.tid,
            word => word.read_volatile(),
        };
        (&raw mut (*thread).tid).write_volatile(now);
    }
}

/// Bytes of a line of memory.
const LINE: usize = 64;

const HEAD_BYTES: u64 = (size_of::<Thread>() as u64).next_multiple_of(2 * LINE as u64);

/// Where its parts begin, in bytes from the thread.
const CALLS: u64 = HEAD_BYTES;
const LEDGER: u64 = CALLS + calls::list::BYTES;
const WALKER: u64 = LEDGER + ledger::BYTES;
const PRIVATE_STACK: u64 = WALKER + walk::BYTES;

/// Bytes from a thread to the table of its remembered walks.
pub const MEMO: usize = (WALKER + walk::TABLE) as usize;

const BYTES: u64 = HEAD + PRIVATE_STACK + STACK;

const _: () = assert!(BYTES <= abi::image::RESERVE_PER_THREAD);

/// Memory for a place.
#[inline(never)]
pub(super) fn map() -> Result<u64, Shortage> {
    memory::map(BYTES)
}

/// The place in memory at `base`.
pub(super) fn at(base: u64) -> *mut Thread {
    (base + HEAD) as *mut Thread
}

/// Makes what [`map`] returned a place that is nobody's, with this entry in the segment.
#[inline(never)]
pub(super) fn fill(base: u64, index: u32) {
    let thread = at(base);
    let of = |part: u64| base + HEAD + part;
    // SAFETY: the parts lie one after the other in memory mapped above, zeroed, all of it ours;
    // sizes are multiples of 8, so every part is aligned.
    unsafe {
        (*thread).tid = NOBODY;
        let overhead = &areas::thread(index).overhead;
        calls::list::begin(&raw mut (*thread).calls, of(CALLS), overhead);
        (*thread).meter.overhead = overhead;
        (*thread).ledger.begin(of(LEDGER), index);
        (*thread).walker.begin(of(WALKER));
        (*thread).private_stack = of(PRIVATE_STACK + STACK) & !0xf;
    }
}
