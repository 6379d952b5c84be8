//! Threads by thread pointer, and the allocation of their places.
//!
//! A place is a [`Thread`], all data that the runtime has of one. Places are never unmapped, but
//! reused: the place of a thread that has ended goes to the next new thread, with its records. So
//! the memory is bounded by the number of threads alive at once, even if a program creates threads
//! forever. A thread has ended if the kernel knows no thread with its id in its process (tgkill(2),
//! ESRCH), or if another thread has its thread pointer or its id.
//!
//! Each call checks by its own thread id that the place belongs to it, see [`Thread::tid_from_tp`].
//! So it does no harm if a thread finds a place that is being given to another thread.

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
    /// The thread pointer plus one; 0 while the bucket is free.
    key: AtomicU64,
    /// The address of the place.
    thread: AtomicU64,
}

/// Key of a bucket whose thread was removed. The search continues after it. No thread pointer is
/// this high.
const LEFT: u64 = u64::MAX;

const BUCKETS: usize = 2 * MAX_THREADS;

/// Shift that turns the product of a thread pointer and the multiplier into the number of its first
/// bucket.
pub const HASH_SHIFT: u32 = u64::BITS - BUCKETS.trailing_zeros();

/// A hash table with open addressing, read without a lock. The buckets come first, so that their
/// address is that of the registry.
#[repr(C)]
pub struct Registry {
    buckets: [Bucket; BUCKETS],
    /// Held during changes, with signals blocked.
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

    /// The place for this thread pointer, or null.
    #[inline(always)]
    pub fn get(&self, tp: u64) -> *mut Thread {
        match self.find(tp) {
            Some(bucket) => bucket.thread.load(Ordering::Acquire) as *mut Thread,
            None => ptr::null_mut(),
        }
    }

    /// The bucket of this thread pointer; `None` if it is not in the table.
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

    /// Adds a thread pointer that is not in the table. False if there is no room. The lock is held.
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

    /// Removes a thread pointer, if it is in the table. The lock is held.
    fn remove(&self, tp: u64) {
        let Some(bucket) = self.find(tp) else {
            return;
        };
        bucket.key.store(LEFT, Ordering::Release);
        // If the next bucket is free, no search continues beyond this one, so the bucket can be
        // freed.
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

/// The place of the calling thread. Null if the thread is not known yet, or if the place at its
/// thread pointer belongs to another thread.
#[inline(always)]
pub fn current() -> *mut Thread {
    let tp = thread_pointer();
    let thread = REGISTRY.get(tp);
    if thread.is_null() {
        return thread;
    }
    // SAFETY: places stay valid. A thread with this thread pointer has its id at the offset that
    // the command has found. If the place has another owner, the ids differ.
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

/// Places, the newest first.
static PLACES: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
/// The next place to check for a thread that has ended.
static NEXT: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());

/// The state of giving a thread a place, under the registry's lock. It is static to save room on
/// the application's stack: the steps are called one after the other.
struct Work {
    /// The calling thread's thread pointer.
    tp: AtomicU64,
    /// Signals blocked before.
    mask: AtomicU64,
    /// The place found so far; null while there is none.
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

/// Gives the calling thread a place: the one at its thread pointer, that of a thread that has
/// ended, or a new one. False if there is none. Runs on the application's stack.
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
        // The table has room, because it has twice as many buckets as there are places.
        if WORK.is_done() {
            REGISTRY.insert(WORK.tp(), WORK.thread());
        }
    }
    if WORK.is_done() {
        give();
    }
    end()
}

/// Starts giving the calling thread a place: blocks signals, because a handler on top of this would
/// wait for the lock forever, and takes the lock. False, without either, if the thread pointer is
/// not known.
#[inline(never)]
fn begin() -> bool {
    let Some(tp) = new_thread_pointer() else {
        return false;
    };
    let mut mask = 0;
    // SAFETY: `end` restores the mask.
    unsafe { sys::block_signals(&raw mut mask) };
    REGISTRY.lock.lock();
    WORK.tp.store(tp, Ordering::Relaxed);
    WORK.mask.store(mask, Ordering::Relaxed);
    true
}

/// Ends giving a place: releases the lock and restores the signal mask. True if there is a place.
#[inline(never)]
fn end() -> bool {
    let is_done = WORK.is_done();
    let mask = WORK.mask.load(Ordering::Relaxed);
    REGISTRY.lock.unlock();
    // SAFETY: `begin` stored the mask.
    unsafe { sys::restore_signals(&raw const mask) };
    is_done
}

/// The entry in the segment of a place that could not be created, plus one; 0 if there is none.
static SPARE: AtomicU32 = AtomicU32::new(0);

/// Takes an entry in the segment for a new place and returns its index.
#[inline(never)]
fn take_entry() -> Result<u32, Shortage> {
    match SPARE.swap(0, Ordering::Relaxed).checked_sub(1) {
        Some(spare) => Ok(spare),
        None => areas::take_thread(),
    }
}

/// Creates a new place, lists it, and stores it in [`WORK`]. Without room or memory, notes the
/// shortage and stores nothing.
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
    // SAFETY: it is complete and not listed yet.
    unsafe { (*thread).listed_before = PLACES.load(Ordering::Relaxed) };
    PLACES.store(thread, Ordering::Release);
    WORK.set(thread);
}

/// Makes the calling thread the owner of the place in [`WORK`].
#[inline(never)]
fn give() {
    let (thread, tp) = (WORK.thread(), WORK.tp());
    // SAFETY: the lock is held, and no other thread uses the place: one that finds it by an old
    // thread pointer sees an id that differs from its own.
    unsafe {
        (&raw mut (*thread).tid).write_volatile(NOBODY);
        let owner = &raw mut (*thread).owner;
        let own = || -> Option<u32> {
            Some((tp.wrapping_add(tid_offset()?) as *const u32).read_volatile())
        };
        ((*owner).kernel_tid, (*owner).process) = if !sys::may_call() {
            (own().unwrap_or((*thread).ledger.thread()), 0)
        } else if sys::getpid() != sys::own_pid() {
            // A child that shares the memory runs as the thread that waits for it, and ends before
            // that continues.
            (own().unwrap_or(sys::own_pid()), sys::own_pid())
        } else {
            (sys::gettid(), sys::own_pid())
        };
        (*thread).busy = 0;
        lead(thread, tp);
    }
}

/// Prepares the place so that the calling thread, which has this thread pointer, recognizes it by
/// its id.
///
/// # Safety
/// The place belongs to the caller, and the lock is held.
unsafe fn lead(thread: *mut Thread, tp: u64) {
    // SAFETY: guaranteed by the caller. If the offset of the id is known, the control block exists.
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

/// The thread pointer of a thread without a control block: the first thread, as the kernel starts a
/// program.
const NONE_YET: u64 = 0;

/// True if a thread is known from before it had a control block.
pub fn has_first() -> bool {
    !REGISTRY.get(NONE_YET).is_null()
}

/// Keeps the place that the calling thread got before it had a control block, as functions of a
/// static program do that create one. True if it had such a place.
#[inline(never)]
fn move_first() -> bool {
    let thread = REGISTRY.get(NONE_YET);
    // Without system calls, it might belong to any thread.
    // SAFETY: places stay valid.
    let is_own = !thread.is_null()
        && sys::may_call()
        && unsafe { (*thread).owner.kernel_tid == sys::gettid() };
    if is_own {
        REGISTRY.remove(NONE_YET);
        // SAFETY: the lock is held, and the place belongs to the caller.
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

/// Searches all places if `among_all`, otherwise the next few, for one whose thread has ended.
/// Removes it from its thread pointer and stores it in [`WORK`]. Finds none if thread ids are not
/// at a known offset, without system calls, and among the next few if threads are recorded
/// separately.
///
/// Each new thread checks a few, so at most a constant fraction of the places is unused.
#[inline(never)]
fn find_ended(among_all: bool) {
    const FEW: usize = 8;
    // Without its id at an offset from the thread pointer, a thread would not notice that its place
    // was given away.
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
            // Few distinct values, so that they collide.
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
