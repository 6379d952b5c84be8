//! Threads by thread pointer, and the places they are given.
//!
//! A place is a [`Thread`]: what the runtime knows of one. It is never given back to the system, but to other
//! threads: one whose thread has ended goes to the next that is met, with its records, so that what a program
//! takes which makes threads for ever is what those take that live at once. A thread has ended when the kernel
//! knows none of its id in its process (tgkill(2), ESRCH), or when another thread has its thread pointer or its id.
//!
//! That a place is one's own, each call sees by its own thread id, see [`Thread::tid_from_tp`]: so it does not
//! matter if a thread is led to a place that is being given to another.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::MAX_THREADS;
use abi::shortage::Shortage;

use super::place::{self, NOBODY, Thread, note_word, word_of};
use crate::ledger::areas;
use crate::os::lock::Lock;
use crate::os::parameters;
use crate::os::thread_pointer::{new_thread_pointer, thread_pointer, tid_offset};
use crate::os::{hash, shared, sys};

/// Threads by thread pointer.
pub static REGISTRY: Registry = Registry::new();

#[repr(C)]
struct Bucket {
    /// thread pointer plus one; 0 while free.
    key: AtomicU64,
    thread: AtomicU64,
}

/// Key of a bucket that had a thread: what is looked for may stand after it. No thread pointer is as high.
const LEFT: u64 = u64::MAX;

const BUCKETS: usize = 2 * MAX_THREADS;

/// How far to the right the number of a thread pointer's first bucket is once it has been multiplied.
pub const HASH_SHIFT: u32 = u64::BITS - BUCKETS.trailing_zeros();

/// Open addressing; read without a lock. It comes first, so that the stubs find it at the address of the whole.
#[repr(C)]
pub struct Registry {
    buckets: [Bucket; BUCKETS],
    /// Held by who changes it, with signals blocked.
    pub(super) lock: Lock,
}

impl Registry {
    /// No thread.
    pub const fn new() -> Self {
        Self {
            buckets: [const {
                Bucket {
                    key: AtomicU64::new(0),
                    thread: AtomicU64::new(0),
                }
            }; BUCKETS],
            lock: Lock::new(),
        }
    }

    /// The place that this thread pointer leads to, or null.
    #[inline(always)]
    pub fn get(&self, tp: u64) -> *mut Thread {
        match self.find(tp) {
            Some(bucket) => bucket.thread.load(Ordering::Acquire) as *mut Thread,
            None => ptr::null_mut(),
        }
    }

    #[inline(always)]
    fn find(&self, tp: u64) -> Option<&Bucket> {
        let first = first_bucket(tp);
        for at in first..first + BUCKETS {
            let bucket = &self.buckets[at % BUCKETS];
            let key = bucket.key.load(Ordering::Acquire);
            if key == tp.wrapping_add(1) {
                return Some(bucket);
            }
            if key == 0 {
                break;
            }
        }
        None
    }

    /// Has a thread pointer that leads nowhere lead to a place; false where there is no room. The lock is held.
    fn insert(&self, tp: u64, thread: *mut Thread) -> bool {
        let first = first_bucket(tp);
        for at in first..first + BUCKETS {
            let bucket = &self.buckets[at % BUCKETS];
            if matches!(bucket.key.load(Ordering::Relaxed), 0 | LEFT) {
                bucket.thread.store(thread as u64, Ordering::Release);
                bucket.key.store(tp.wrapping_add(1), Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Has a thread pointer lead nowhere. The lock is held.
    fn remove(&self, tp: u64) {
        let Some(bucket) = self.find(tp) else {
            return;
        };
        bucket.key.store(LEFT, Ordering::Release);
        // Where nothing stands after it, nothing needs to be looked for beyond it.
        let mut at =
            (ptr::from_ref(bucket) as usize - self.buckets.as_ptr() as usize) / size_of::<Bucket>();
        while self.buckets[(at + 1) % BUCKETS].key.load(Ordering::Relaxed) == 0
            && self.buckets[at].key.load(Ordering::Relaxed) == LEFT
        {
            self.buckets[at].key.store(0, Ordering::Release);
            at = (at + BUCKETS - 1) % BUCKETS;
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn first_bucket(tp: u64) -> usize {
    hash::bucket(tp, BUCKETS.ilog2())
}

/// The calling thread; null where it is not known yet, or what has its thread pointer is another's place.
#[inline(always)]
pub fn current() -> *mut Thread {
    let tp = thread_pointer();
    let thread = REGISTRY.get(tp);
    if thread.is_null() {
        return thread;
    }
    // SAFETY: places stay valid; whoever has this thread pointer has its id at an offset from it where the command has
    // found every thread's. Another place's owner has another.
    unsafe {
        let is_own = match tid_offset() {
            Some(offset) => {
                let own = (tp.wrapping_add(offset) as *const u32).read_volatile();
                (&raw const (*thread).owner.tid).read_volatile() == own
            }
            None => true,
        };
        if is_own { thread } else { ptr::null_mut() }
    }
}

/// Places, the last one first.
static PLACES: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
/// The place that is looked at next for whether its thread has ended.
static NEXT: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());

/// What is known of the thread that is given a place, under the registry's lock. It is here for this takes little of
/// the application's stack: each step is called with nothing of the others on it.
struct Work {
    tp: AtomicU64,
    /// Signals blocked before.
    mask: AtomicU64,
    thread: AtomicPtr<Thread>,
}

static WORK: Work = Work {
    tp: AtomicU64::new(0),
    mask: AtomicU64::new(0),
    thread: AtomicPtr::new(ptr::null_mut()),
};

impl Work {
    fn tp(&self) -> u64 {
        self.tp.load(Ordering::Relaxed)
    }

    fn thread(&self) -> *mut Thread {
        self.thread.load(Ordering::Relaxed)
    }

    fn set(&self, thread: *mut Thread) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    fn is_done(&self) -> bool {
        !self.thread().is_null()
    }
}

/// Gives the calling thread a place: what its thread pointer led to before, that of a thread that has ended, or a new one;
/// false where there is none. Runs on the application's stack.
#[cold]
#[inline(never)]
pub fn register() -> bool {
    if !begin() {
        return false;
    }
    WORK.set(REGISTRY.get(WORK.tp()));
    if !WORK.is_done() && move_first() {
        return end();
    }
    if !WORK.is_done() {
        find_ended(false);
        if !WORK.is_done() {
            make();
        }
        if !WORK.is_done() {
            find_ended(true);
        }
        // There are twice as many buckets as places.
        if WORK.is_done() {
            REGISTRY.insert(WORK.tp(), WORK.thread());
        }
    }
    if WORK.is_done() {
        give();
    }
    end()
}

/// Begins to give the calling thread a place, with signals blocked: a handler on top of this would wait for the lock
/// for ever.
#[inline(never)]
fn begin() -> bool {
    let Some(tp) = new_thread_pointer() else {
        return false;
    };
    let mut mask = 0;
    // SAFETY: `end` puts the mask back.
    unsafe { sys::block_signals(&raw mut mask) };
    REGISTRY.lock.lock();
    WORK.tp.store(tp, Ordering::Relaxed);
    WORK.mask.store(mask, Ordering::Relaxed);
    true
}

/// Ends it; whether there is a place.
#[inline(never)]
fn end() -> bool {
    let is_done = WORK.is_done();
    let mask = WORK.mask.load(Ordering::Relaxed);
    REGISTRY.lock.unlock();
    // SAFETY: as it was.
    unsafe { sys::restore_signals(&raw const mask) };
    is_done
}

/// An entry of the segment that a place could not be made for, plus one.
static SPARE: AtomicU32 = AtomicU32::new(0);

/// An entry of the segment for a new place.
#[inline(never)]
fn take_entry() -> Result<u32, Shortage> {
    match SPARE.swap(0, Ordering::Relaxed).checked_sub(1) {
        Some(spare) => Ok(spare),
        None => areas::take_thread(),
    }
}

/// Makes a new place and lists it.
#[inline(never)]
fn make() {
    let index = match take_entry() {
        Ok(index) => index,
        Err(shortage) => return shared::note_missed(shortage),
    };
    let base = match place::map() {
        Ok(base) => base,
        Err(shortage) => {
            SPARE.store(index + 1, Ordering::Relaxed);
            return shared::note_missed(shortage);
        }
    };
    place::fill(base, index);
    let thread = place::at(base);
    // SAFETY: it is complete, and not listed yet.
    unsafe { (*thread).listed_before = PLACES.load(Ordering::Relaxed) };
    PLACES.store(thread, Ordering::Release);
    WORK.set(thread);
}

/// Makes the calling thread the owner of the place that its thread pointer leads to.
#[inline(never)]
fn give() {
    let (thread, tp) = (WORK.thread(), WORK.tp());
    // SAFETY: the lock is held, and nobody else uses the place, as whoever comes to it by an old thread pointer sees
    // an id that is not its own.
    unsafe {
        (&raw mut (*thread).tid).write_volatile(NOBODY);
        let owner = &raw mut (*thread).owner;
        let own = || -> Option<u32> {
            Some((tp.wrapping_add(tid_offset()?) as *const u32).read_volatile())
        };
        ((*owner).kernel_tid, (*owner).process) = if !sys::may_call() {
            (own().unwrap_or((*thread).ledger.thread()), 0)
        } else if sys::getpid() != sys::own_pid() {
            // A child that shares the memory runs as the thread that waits for it, and ends before that.
            (own().unwrap_or(sys::own_pid()), sys::own_pid())
        } else {
            (sys::gettid(), sys::own_pid())
        };
        (*thread).busy = 0;
        lead(thread, tp);
    }
}

/// Has the calling thread, whose thread pointer this is, find its id where it looks for it.
///
/// # Safety
/// The place is the caller's, and the lock held.
unsafe fn lead(thread: *mut Thread, tp: u64) {
    // SAFETY: the caller's promise; where its id stands at an offset, the control block is there.
    unsafe {
        let owner = &raw mut (*thread).owner;
        let offset = tid_offset();
        let tid = match offset {
            Some(offset) => (tp.wrapping_add(offset) as *const u32).read_volatile(),
            None => (*owner).kernel_tid,
        };
        (*owner).tp = tp;
        (*owner).nobody = NOBODY;
        (&raw mut (*owner).tid).write_volatile(tid);
        let by_mark = || (word_of(thread) as u64).wrapping_sub(tp);
        (*thread).tid_from_tp = offset.filter(|_| (*owner).has_id()).unwrap_or_else(by_mark);
    }
}

/// The thread pointer of a thread that has no control block yet: the first one, as the kernel starts a program.
const NONE_YET: u64 = 0;

/// Whether there is a thread that was met before it had a control block.
pub fn has_first() -> bool {
    !REGISTRY.get(NONE_YET).is_null()
}

/// Keeps the place of the calling thread where that was met before it had a control block, as in functions of a static
/// program that make one. Whether it was.
#[inline(never)]
fn move_first() -> bool {
    let thread = REGISTRY.get(NONE_YET);
    // Where the kernel may not be asked it may be any thread.
    // SAFETY: places stay valid.
    let is_own = !thread.is_null()
        && sys::may_call()
        && unsafe { (*thread).owner.kernel_tid == sys::gettid() };
    if is_own {
        REGISTRY.remove(NONE_YET);
        // SAFETY: the lock is held, and the place the caller's; all of it stays so.
        unsafe {
            let is_whole = (*thread).tid != NOBODY;
            lead(thread, WORK.tp());
            if is_whole && !(*thread).owner.has_id() {
                note_word(thread);
            } else if is_whole {
                (&raw mut (*thread).tid).write_volatile((*thread).owner.tid);
            }
        }
        REGISTRY.insert(WORK.tp(), thread);
        WORK.set(thread);
    }
    is_own
}

/// Looks for a place whose thread has ended, among a few or all; the thread pointer of that leads to it no longer.
///
/// Each new thread looks at a few, so that of the places not more than one in so many is free.
#[inline(never)]
fn find_ended(among_all: bool) {
    const FEW: usize = 8;
    // Without its id at an offset from the thread pointer, a thread whose place has been given away would not know.
    let can_tell = tid_offset().is_some() && sys::may_call();
    let is_wanted = among_all || !parameters::tells_threads_apart();
    if !can_tell || !is_wanted {
        return;
    }
    let count = if among_all { MAX_THREADS } else { FEW };
    for _ in 0..count {
        let mut next = NEXT.load(Ordering::Relaxed);
        if next.is_null() {
            next = PLACES.load(Ordering::Relaxed);
        }
        if next.is_null() {
            break;
        }
        // SAFETY: listed places stay valid.
        unsafe {
            NEXT.store((*next).listed_before, Ordering::Relaxed);
            let owner = &(*next).owner;
            if !sys::is_thread(owner.process, owner.kernel_tid) || owner.kernel_tid == sys::gettid()
            {
                REGISTRY.remove(owner.tp);
                WORK.set(next);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_been_removed_does_not_hide_what_is_after_it() {
        static REGISTRY: Registry = Registry::new();
        let thread = |n: u64| n as *mut Thread;
        let mut there: std::collections::BTreeMap<u64, u64> = Default::default();
        let mut seed = 1u64;
        for round in 1..200_000u64 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Few buckets, so that they collide.
            let tp = (seed >> 20) % 3000 * 64;
            if there.remove(&tp).is_some() {
                REGISTRY.remove(tp);
            } else {
                assert!(REGISTRY.insert(tp, thread(round)));
                there.insert(tp, round);
            }
            assert_eq!(
                REGISTRY.get(tp) as u64,
                there.get(&tp).copied().unwrap_or(0)
            );
        }
        for tp in (0..3000).map(|n| n * 64) {
            assert_eq!(
                REGISTRY.get(tp) as u64,
                there.get(&tp).copied().unwrap_or(0)
            );
            REGISTRY.remove(tp);
        }
        let keys = REGISTRY
            .buckets
            .iter()
            .map(|bucket| bucket.key.load(Ordering::Relaxed));
        assert_eq!(
            keys.filter(|&key| key != 0).count(),
            0,
            "all are free again"
        );
    }
}
