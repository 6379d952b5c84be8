//! Stacks that are left and come back to, on the same thread or on another one: those of coroutines.
//!
//! The activations of one stack are all in the list of one thread, its owner: the one that has made the
//! last call there, or returned from one. Where another thread comes to the stack it takes them over, and
//! becomes the writer of their records. Nothing here happens in a program whose threads keep to one
//! stack each.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::segment::{FIRST_NODE, RecordHead};

use crate::activation::{self, Activation};
use crate::entry::{find, grow_frames};
use crate::exit::{pop, raise};
use crate::thread::{ACTIVATIONS, HASH, Thread};
use crate::walk::Walk;
use crate::{learn, memory, segment, thread};

/// Slot of what stands in a list between the activations of two stacks, above every address. Calls of
/// the stack that it bears find it as what encloses them.
pub const SEPARATOR: u64 = u64::MAX - 7;
/// Slot of an activation that another thread has taken over.
const TAKEN: u64 = 0;

/// 1 once a stack has been seen that is not a thread's own.
pub static HAVE_COROUTINES: AtomicU32 = AtomicU32::new(0);

/// Whether there may be stacks that go from thread to thread.
#[inline(always)]
pub fn have_coroutines() -> bool {
    HAVE_COROUTINES.load(Ordering::Relaxed) != 0
}

/// Notes that there are, and whose the calls on each are. The caller holds no lock.
pub fn note_coroutines() {
    if HAVE_COROUTINES.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    for owner in thread::all() {
        // SAFETY: a known thread's list stays valid; with its lock held only its owner's quick way changes
        // it, at its top.
        unsafe {
            lock(owner);
            let mut at = (&raw const (*owner).top).read_volatile();
            while (*at).slot != u64::MAX {
                own((*at).stack, owner);
                at = (*at).prev;
            }
            unlock(owner);
        }
    }
}

const BITS: u32 = 14;
const SLOTS: usize = 1 << BITS;
/// Slots that are looked at for one stack. Where none is free all threads are asked.
const PROBES: usize = 64;

struct Slot {
    /// The stack; 0 while free.
    stack: AtomicU64,
    /// Its owner.
    thread: AtomicU64,
}

/// The owner of each stack.
struct Owners([Slot; SLOTS]);

static OWNERS: Owners = Owners(
    [const {
        Slot {
            stack: AtomicU64::new(0),
            thread: AtomicU64::new(0),
        }
    }; SLOTS],
);

impl Owners {
    /// Makes a thread the owner of a stack; the one before, null where there was none. `None` where there is
    /// no room.
    fn hand_over(&self, stack: u64, to: *mut Thread) -> Option<*mut Thread> {
        let first = (stack.wrapping_mul(HASH) >> (u64::BITS - BITS)) as usize;
        for at in first..first + PROBES {
            let slot = &self.0[at % SLOTS];
            let free = slot
                .stack
                .compare_exchange(0, stack, Ordering::Relaxed, Ordering::Relaxed);
            if free.is_ok() || free == Err(stack) {
                return Some(slot.thread.swap(to as u64, Ordering::AcqRel) as *mut Thread);
            }
        }
        None
    }
}

/// The thread whose list has activations of a stack, besides `but`; null where none has. The others are no
/// longer on it.
unsafe fn search(stack: u64, but: *mut Thread) -> *mut Thread {
    let mut found = ptr::null_mut();
    for owner in thread::all().filter(|&owner| owner != but) {
        // SAFETY: as for `note_coroutines`.
        unsafe {
            lock(owner);
            let mut at = (&raw const (*owner).top).read_volatile();
            while (*at).slot != u64::MAX {
                if (*at).stack == stack && (*at).slot == SEPARATOR {
                    (*at).stack = 0;
                } else if (*at).stack == stack {
                    found = owner;
                }
                at = (*at).prev;
            }
            unlock(owner);
        }
    }
    found
}

/// Notes whose list the activations of a stack are in.
pub(crate) fn own(stack: u64, owner: *mut Thread) {
    OWNERS.hand_over(stack, owner);
}

/// Keeps others out of a thread's list, but for its own calls that need none of this; signals are
/// blocked.
///
/// # Safety
/// The thread is known; its lock is not held by the caller.
pub(crate) unsafe fn lock(thread: *mut Thread) {
    // SAFETY: the caller's promise; the lock is an atomic.
    unsafe { (*thread).lock.lock() };
}

/// Ends what [`lock`] began.
///
/// # Safety
/// The caller holds the lock.
pub(crate) unsafe fn unlock(thread: *mut Thread) {
    // SAFETY: the caller's promise.
    unsafe { (*thread).lock.unlock() };
}

/// Locks the caller's list and drops from it what others have taken over.
///
/// # Safety
/// As for [`lock`]; the thread is the caller's.
pub(crate) unsafe fn lock_own(thread: *mut Thread) {
    // SAFETY: the caller's promise.
    unsafe {
        lock(thread);
        if (*thread).has_taken == 0 {
            return;
        }
        (*thread).has_taken = 0;
        let mut at = (*thread).top;
        while (*at).slot != u64::MAX {
            let prev = (*at).prev;
            if (*at).slot == TAKEN {
                pop(thread, raise(thread, at));
            }
            at = prev;
        }
    }
}

/// Makes the calling thread, which has come to `stack`, its owner, and its activations the innermost
/// ones of the list. Runs on the private stack, with signals blocked.
///
/// # Safety
/// The thread is the caller's and runs on that stack; it holds no lock.
pub(crate) unsafe fn arrive(thread: *mut Thread, stack: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let is_there = (*thread).current == stack && (*(*thread).top).stack == stack;
        if !have_coroutines() || is_there {
            return;
        }
        let before = match OWNERS.hand_over(stack, thread) {
            Some(before) => before,
            None => search(stack, thread),
        };
        let is_owner = before.is_null() || before == thread;
        lock_own(thread);
        while (*(*thread).top).slot == SEPARATOR {
            (*thread).top = (*(*thread).top).prev;
        }
        separate(thread, stack);
        if is_owner {
            gather(thread, stack);
        }
        unlock(thread);
        if !is_owner {
            take_over(thread, before, stack);
        }
        lock(thread);
        recount(thread, stack);
        unlock(thread);
    }
}

/// Brings what the thread's list has of a stack to its top, in its order, above the separator that is there.
unsafe fn gather(thread: *mut Thread, stack: u64) {
    // SAFETY: the list is locked and the caller's; it ends at the bottom.
    unsafe {
        let mut left = 0;
        let mut at = (*(*thread).top).prev;
        while (*at).slot != u64::MAX {
            left += usize::from((*at).stack == stack);
            at = (*at).prev;
        }
        // Each goes to the top from below: the outermost first.
        at = (*at).next;
        while left != 0 {
            if (*at).stack != stack {
                at = (*at).next;
                continue;
            }
            let top = raise(thread, at);
            if (*top).slot == SEPARATOR {
                (*thread).top = (*top).prev;
            }
            left -= 1;
        }
    }
}

/// Has the thread's `depths` be of `stack`.
unsafe fn recount(thread: *mut Thread, stack: u64) {
    // SAFETY: as for `gather`; function ids are below MAX_FUNCTIONS, as many as `depths` has.
    unsafe {
        (*thread).current = stack;
        let for_each = |work: &dyn Fn(&mut Activation, &mut u32)| {
            let mut at = (*thread).top;
            while (*at).slot != u64::MAX {
                if (*at).slot != SEPARATOR {
                    let function = (*at).function as usize % abi::MAX_FUNCTIONS;
                    work(&mut *at, &mut *(*thread).depths.add(function));
                }
                at = (*at).prev;
            }
        };
        for_each(&|_, depth| *depth = 0);
        for_each(&|activation, depth| {
            let is_current = activation.stack == stack;
            activation.uncounted = u32::from(!is_current);
            *depth += u32::from(is_current);
        });
    }
}

/// Has the next calls of a stack find something that encloses them, and not what another stack has below.
unsafe fn separate(thread: *mut Thread, stack: u64) {
    // SAFETY: as for `gather`.
    unsafe {
        if !has_room(thread) {
            return;
        }
        let new = (*(*thread).top).next;
        (*new).slot = SEPARATOR;
        (*new).stack = stack;
        (*new).nested = 0;
        (*new).record = ptr::null();
        (*new).function = u32::MAX;
        (*new).generation = u32::MAX;
        (*thread).top = new;
    }
}

/// Sees to it that the list has a free activation.
///
/// # Safety
/// The thread is the caller's.
pub(crate) unsafe fn has_room(thread: *mut Thread) -> bool {
    // SAFETY: the caller's promise; new memory is nobody else's.
    unsafe {
        if !(*(*thread).top).next.is_null() {
            return true;
        }
        let bytes = ACTIVATIONS * size_of::<Activation>() as u64;
        let Some(memory) = memory::map(bytes) else {
            return false;
        };
        activation::link(
            memory as *mut Activation,
            ACTIVATIONS as usize,
            (*thread).top,
        );
        true
    }
}

/// Takes the activations of a stack from the list of the thread that had it before, which may be making
/// calls on another stack meanwhile: those change neither these activations nor any link.
unsafe fn take_over(thread: *mut Thread, from: *mut Thread, stack: u64) {
    // SAFETY: a known thread's list stays valid, and with its lock held only its owner's quick way
    // changes it, at its top, where activations of another stack are.
    unsafe {
        lock(from);
        let last = (&raw const (*from).top).read_volatile();
        let mut at = last;
        while (*at).slot != u64::MAX {
            at = (*at).prev;
        }
        while at != last {
            at = (*at).next;
            if (*at).stack != stack {
                continue;
            }
            if (*at).slot == SEPARATOR {
                // Calls there find no longer that it encloses them.
                (*at).stack = 0;
                continue;
            }
            if !has_room(thread) {
                continue;
            }
            let Some(record) = record_of(thread, &*(*at).record) else {
                continue;
            };
            let given = &(*(*at).record).moved_out;
            given.fetch_add(1, Ordering::Relaxed);
            let got = &record.moved_in;
            got.store(got.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let new = (*(*thread).top).next;
            (*new).slot = (*at).slot;
            (*new).stack = stack;
            (*new).start = (*at).start;
            (*new).nested = (*at).nested;
            (*new).record = record;
            (*new).function = (*at).function;
            (*new).generation = (*at).generation;
            (*new).outermost = (*at).outermost;
            (*new).uncounted = 1;
            (*thread).top = new;
            (*at).slot = TAKEN;
            (*at).stack = 0;
            (*from).has_taken = 1;
        }
        unlock(from);
    }
}

/// The calling thread's record of the path that another thread's record is of.
unsafe fn record_of(thread: *mut Thread, other: &RecordHead) -> Option<&'static RecordHead> {
    let function = other.function.load(Ordering::Relaxed);
    let path = segment::node(other.path.load(Ordering::Relaxed));
    let mut walk = Walk::begin(function, 0);
    let mut at = path.parent.load(Ordering::Relaxed);
    // SAFETY: the thread is the caller's; `frames` has room for as many addresses as its capacity.
    unsafe {
        while at >= FIRST_NODE {
            let site = segment::node(at);
            if walk.len == (*thread).frames_capacity {
                grow_frames(thread)?;
                return record_of(thread, other);
            }
            let frame = site.key.load(Ordering::Relaxed);
            (*thread).frames.add(walk.len as usize).write(frame);
            walk.add(frame);
            at = site.parent.load(Ordering::Relaxed);
        }
        walk.end(at);
        find(thread, function, &walk).or_else(|| learn::path(thread, function, &walk))
    }
}
