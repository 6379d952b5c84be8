//! What the runtime knows of each thread, found by its FS base.

use core::arch::asm;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::Ordering;

use abi::MAX_FUNCTIONS;

use crate::activation::{self, Activation};
use crate::lock::Lock;
use crate::memo::{self, Memo, Miss, Read, Run};
use crate::moving::Moving;
use crate::paths::{self, Paths};
use crate::state::{REGISTRY, ipath_parameters};
use crate::sys::AlternateStack;
use crate::walk::Walk;
use crate::{fold, memory, sys};

/// Bytes of a thread's private stack.
const STACK: u64 = 96 * 1024;
/// Frames a walk can hold at first.
const FRAMES: u64 = 512;
/// Activations that a thread has room for at first, and that more memory is mapped for each time.
pub const ACTIVATIONS: u64 = 256;
/// Of the first, those that are linked at a time: the rest takes no memory.
const LINKED: u64 = 32;
/// Stacks a thread is remembered to have run on.
pub const STACKS: usize = 8;

/// Callee-saved registers at a probe point, as the slow path's stub stores them.
#[repr(C)]
pub struct Saved {
    /// rbx.
    pub rbx: u64,
    /// rbp.
    pub rbp: u64,
    /// r12 to r15.
    pub r12_15: [u64; 4],
}

/// A range of memory that a stack lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StackRange {
    /// First address.
    pub low: u64,
    /// First address after it.
    pub high: u64,
}

impl StackRange {
    /// Whether it holds the word at `slot`.
    #[inline(always)]
    pub fn holds(&self, slot: u64) -> bool {
        self.low <= slot && slot < self.high
    }
}

/// One thread. Only the thread itself touches it, a signal handler on it nothing but `busy`,
/// which tells it to keep out.
#[repr(C)]
pub struct Thread {
    /// Address of the return address of the call being recorded; 0 while none is.
    pub busy: u64,
    /// Where the stub looks for remembered walks: the stack the thread was last seen on, or nowhere.
    pub quick: StackRange,
    /// Innermost activation.
    pub top: *mut Activation,
    /// Where the thread's id stands, from its FS base on: in its control block, or where that is not known in
    /// `tid`. Whoever asks adds its own FS base: then `tid` is its own id only if the place is its own.
    pub tid_from_fs: u64,
    /// Thread id; [`NOBODY`] until the thread whose place this is has made all of it its own.
    pub tid: u32,
    /// Index of the thread's entry in the segment.
    pub index: u32,
    /// rbp at the entry of the call being recorded: a word that walks read, like those of the stack.
    pub entry_rbp: u64,
    /// Activations per function, of those in its list.
    pub depths: *mut u32,
    /// Calls that the stub has recorded.
    pub quick_calls: u64,
    /// The application's stack pointer while the slow path runs.
    pub saved_rsp: u64,
    /// Top of the private stack, aligned to 16.
    pub private_stack: u64,
    /// Walks of earlier calls.
    pub memo: Memo,
    /// Stack the thread was last seen on.
    pub stack: StackRange,
    /// The application's callee-saved registers while the slow path runs.
    pub saved: Saved,
    /// When the exit was reached that the slow path sees to, by the time-stamp counter.
    pub now: u64,
    /// The application's signal mask while the slow path runs.
    pub signal_mask: u64,
    /// The paths it has been on.
    pub paths: Paths,
    /// Return addresses of the walk under way.
    pub frames: *mut u64,
    /// How many fit.
    pub frames_capacity: u64,
    /// The numbers of their rules, four more than that.
    pub sites: *mut u16,
    /// Words that the walk under way has read: room for [`READS`] a frame and one.
    pub reads: *mut Read,
    /// Where recursion is folded: [`fold::slots`] for all frames that fit.
    pub folding: *mut u32,
    /// The walk just made, and where it was missed, while it is being remembered.
    pub walk: Walk,
    /// See `walk`.
    pub miss: Miss,
    /// What it came to.
    pub found: Run,
    /// Other stacks the thread has run on, and which of them is replaced next.
    pub stacks: [StackRange; STACKS],
    /// See `stacks`.
    pub next_stack: u64,
    /// The alternate signal stack when it was last asked for, here to save room on the application's.
    pub alternate: AlternateStack,
    /// 1 while somebody changes the list of activations otherwise than at its top ([`crate::stacks`]).
    pub lock: Lock,
    /// 1 where another thread has taken activations over.
    pub has_taken: u32,
    /// When the bounds of a stack were last looked at again.
    pub renewed: u64,
    /// Where they ended then.
    pub renewed_end: u64,
    /// The first stack the thread was seen on.
    pub home: u64,
    /// The stack that its list is of; 0 where that is its first one, or not known.
    pub current: u64,
    /// The bottom of the list, which has no activation: the first of [`ACTIVATIONS`] that lie behind each other.
    pub bottom: *mut Activation,
    /// How many of those have been linked.
    pub linked: u64,
    /// The stack that it is copying.
    pub moving: Moving,
    /// The thread that was listed before it.
    pub listed_before: *mut Thread,
    /// Whose place it is, under [`registry`]'s lock.
    pub owner: Owner,
}

/// What no thread has as its id.
pub const NOBODY: u32 = u32::MAX;

/// The thread that a place is given to.
#[repr(C)]
pub struct Owner {
    /// Its FS base.
    pub fs: u64,
    /// What stands where its id is looked for.
    pub tid: u32,
    /// Its id as the kernel has it, which is the same as a rule, and that of its process.
    pub kernel_tid: u32,
    /// See `kernel_tid`.
    pub process: u32,
    _padding: u32,
}

/// A frame's return address, the frame pointer that leads to it, and where the frame was realigned its
/// canonical frame address.
pub const READS: u64 = 3;

/// More sites than frames: what fills up the last word.
const MORE_SITES: u64 = 4;

/// Bytes of the buffers for a walk of `frames` frames.
pub const fn walk_bytes(frames: u64) -> u64 {
    frames * 8
        + reads_bytes(frames)
        + fold::slots(frames) * size_of::<u32>() as u64
        + ((frames + MORE_SITES) * size_of::<u16>() as u64).next_multiple_of(16)
}

const fn reads_bytes(frames: u64) -> u64 {
    (frames * READS + 1) * size_of::<Read>() as u64
}

impl Thread {
    /// Tells the stub where to look for remembered walks.
    #[inline(always)]
    pub fn set_quick(&mut self) {
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

    /// Links some more of the first activations behind the innermost, which is the list's last; false where all
    /// are linked.
    ///
    /// # Safety
    /// The thread is the caller's, and has the memory for them.
    pub unsafe fn link_more(&mut self) -> bool {
        if self.linked == ACTIVATIONS {
            return false;
        }
        let last = if self.linked == 0 {
            ptr::null_mut()
        } else {
            self.top
        };
        // SAFETY: what is not linked yet is zeroed and nobody else's; the rest is the caller's promise.
        unsafe { activation::link(self.bottom.add(self.linked as usize), LINKED as usize, last) };
        self.linked += LINKED;
        true
    }

    /// Takes the [`walk_bytes`] at `base` for walks.
    ///
    /// # Safety
    /// They are the thread's alone, aligned to 8, and `frames` is a power of two.
    pub unsafe fn use_for_walks(&mut self, base: u64, frames: u64) {
        self.frames = base as *mut u64;
        self.frames_capacity = frames;
        let reads = base + frames * 8;
        self.reads = reads as *mut Read;
        let folding = reads + reads_bytes(frames);
        self.folding = folding as *mut u32;
        self.sites = (folding + fold::slots(frames) * size_of::<u32>() as u64) as *mut u16;
    }
}

/// Bytes before it in its mapping: what every call stores to shares no place in its page with what
/// every call reads, which stands at the start of one. Processors take the one for the other at first
/// ("4K aliasing", Intel's optimization manual 15.8).
const HEAD: u64 = 1024;

const _: () = assert!(
    HEAD as usize + core::mem::offset_of!(Thread, saved_rsp) == abi::image::THREAD_SAVED_RSP
);

/// What keys are multiplied with, in [`crate::registry`] and in [`memo`]: the stubs do both.
pub const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// The FS base: the word at %fs:0, where glibc and musl keep it (psABI 3.4.6, variant II thread
/// pointers point at themselves), else by `rdfsbase`, which costs several times as much next to
/// `rdtsc`.
#[inline(always)]
pub(crate) fn fs_base() -> u64 {
    let base: u64;
    if ipath_parameters.rdfsbase.load(Ordering::Relaxed) != 0 {
        return rdfsbase();
    }
    // SAFETY: reads the thread's own control block.
    unsafe { asm!("mov {}, fs:0", out(reg) base, options(readonly, nostack, preserves_flags)) };
    base
}

/// The FS base by its register; the parameters say whether it may be asked so.
#[inline(always)]
fn rdfsbase() -> u64 {
    let base: u64;
    // SAFETY: reads a register.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// The FS base of a thread that is not known yet. A program may have begun with a loader's control blocks, and then
/// have its own without self-pointers, as Go's do: from then on the register tells. `None` where only the kernel
/// could, and it says another.
#[inline(always)]
pub(crate) fn new_fs_base() -> Option<u64> {
    let parameters = &ipath_parameters;
    if parameters.has_rdfsbase.load(Ordering::Relaxed) == 0 {
        let base = fs_base();
        return sys::fs_base()
            .is_none_or(|real| real == base)
            .then_some(base);
    }
    if fs_base() != rdfsbase() {
        parameters.tid_offset.store(-1, Ordering::Relaxed);
        parameters.rdfsbase.store(1, Ordering::Relaxed);
    }
    Some(fs_base())
}

/// Where behind its FS base each thread has its id; `None` where that is not known.
#[inline(always)]
pub(crate) fn tid_offset() -> Option<u64> {
    u64::try_from(ipath_parameters.tid_offset.load(Ordering::Relaxed)).ok()
}

/// The calling thread; null where it is not known yet, or what has its FS base is another's place.
#[inline(always)]
pub fn current() -> *mut Thread {
    let fs = fs_base();
    let thread = REGISTRY.get(fs);
    if thread.is_null() {
        return thread;
    }
    // SAFETY: places stay valid; whoever has this FS base has its id behind it where the command has found every
    // thread's. Another place's owner has another.
    unsafe {
        let is_own = match tid_offset() {
            Some(offset) => {
                let own = (fs.wrapping_add(offset) as *const u32).read_volatile();
                (&raw const (*thread).owner.tid).read_volatile() == own
            }
            None => true,
        };
        if is_own { thread } else { ptr::null_mut() }
    }
}

/// Whether all of `thread`, which is the calling thread's place, is the calling thread's: not so as long as it has
/// what another has left.
///
/// # Safety
/// `thread` came from [`current`].
#[inline(always)]
pub unsafe fn is_same_thread(thread: *mut Thread) -> bool {
    // SAFETY: places stay valid; the calling thread has the FS base, behind which the command has found the id of
    // every thread.
    unsafe {
        let at = fs_base().wrapping_add((*thread).tid_from_fs) as *const u32;
        at.read_volatile() == (&raw const (*thread).tid).read_volatile()
    }
}

const TABLE_BYTES: u64 = size_of::<Activation>() as u64 * ACTIVATIONS;
const DEPTHS_BYTES: u64 = size_of::<u32>() as u64 * MAX_FUNCTIONS as u64;
const HEAD_BYTES: u64 = (size_of::<Thread>() as u64).next_multiple_of(64);

const BYTES: u64 = HEAD
    + HEAD_BYTES
    + TABLE_BYTES
    + DEPTHS_BYTES
    + paths::BYTES
    + walk_bytes(FRAMES)
    + memo::BYTES
    + STACK;

/// Memory for a place; 0 where there is none.
#[inline(never)]
pub(crate) fn map() -> u64 {
    memory::map(BYTES).unwrap_or(0)
}

const _: () = assert!(BYTES <= abi::image::RESERVE_PER_THREAD);

/// The place in memory at `base`.
pub(crate) fn at(base: u64) -> *mut Thread {
    (base + HEAD) as *mut Thread
}

/// Makes what [`map`] returned a place that is nobody's.
#[inline(never)]
pub(crate) fn fill(base: u64, index: u32) {
    let thread = at(base);
    let activations = base + HEAD + HEAD_BYTES;
    // SAFETY: the parts lie behind each other in memory mapped above, zeroed, all of it ours;
    // sizes are multiples of 8, so every part is aligned.
    unsafe {
        (*thread).tid = NOBODY;
        (*thread).index = index;
        (*thread).depths = (activations + TABLE_BYTES) as *mut u32;
        let paths = activations + TABLE_BYTES + DEPTHS_BYTES;
        (*thread).paths.begin(paths);
        let buffers = paths + paths::BYTES;
        (*thread).use_for_walks(buffers, FRAMES);
        let memo = buffers + walk_bytes(FRAMES);
        (*thread).memo.begin(memo);
        (*thread).private_stack = (memo + memo::BYTES + STACK) & !0xf;
        (*thread).top = activations as *mut Activation;
        // The bottom of the list encloses every call.
        (*thread).bottom = (*thread).top;
        (*thread).link_more();
        (*(*thread).top).slot = u64::MAX;
        (*(*thread).top).function = u32::MAX;
    }
}
