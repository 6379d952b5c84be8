//! Stacks that are left and come back to, on the same thread or on another one: those of coroutines.
//!
//! A thread's list has the activations of the stack it was last seen on. When it comes to another one it
//! parks them ([`crate::lot`]), and takes what that one has: from there, or from the list of the thread that
//! was last there and has not yet been seen elsewhere. So it becomes the writer of their records. What no
//! root is known of, such as a handler on an alternate stack, stays in the thread's list. Nothing here happens
//! in a program whose threads keep to one stack each.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::segment::{FIRST_NODE, RecordHead};

use crate::activation::{self, Activation};
use crate::entry::{find, grow_frames};
use crate::exit::{self, pop, raise, uncount};
use crate::lot::{Chain, Lot};
use crate::thread::{ACTIVATIONS, HASH, STACKS, StackRange, Thread};
use crate::walk::Walk;
use crate::{learn, memory, registry, segment};

/// Slot of what stands in a list above what stays in it when the thread comes to another stack, above every
/// address. Calls of the stack that it bears find it as what encloses them.
pub const SEPARATOR: u64 = u64::MAX - 7;
/// Slot of an activation that another thread has taken over.
const TAKEN: u64 = 0;

/// 1 once a stack has been seen that is not a thread's own.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_coroutines: AtomicU32 = AtomicU32::new(0);

/// Whether there may be stacks that go from thread to thread.
#[inline(always)]
pub fn have_coroutines() -> bool {
    ipath_coroutines.load(Ordering::Relaxed) != 0
}

/// Notes that there are, and whose the calls on each are. The caller holds no lock.
pub fn note_coroutines() {
    if ipath_coroutines.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    for owner in registry::all() {
        // SAFETY: a known thread's list stays valid; with its lock held only its owner's quick way changes
        // it, at its top.
        unsafe {
            lock(owner);
            for at in listed(owner) {
                OWNERS.hand_over((*at).stack, owner);
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

/// What has been left.
pub(crate) static LOT: Lot = Lot::new();

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

/// Makes the list of the calling thread, which has come to `stack`, that of its calls. Runs on the private
/// stack, with signals blocked.
///
/// # Safety
/// The thread is the caller's and runs on that stack; it holds no lock.
pub(crate) unsafe fn arrive(thread: *mut Thread, stack: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if !have_coroutines() || (*thread).current == stack && (*(*thread).top).stack == stack {
            return;
        }
        lock_own(thread);
        let is_there = (*thread).current == stack;
        if !is_there {
            leave(thread);
            (*thread).current = stack;
        }
        separate(thread, stack);
        unlock(thread);
        if is_there {
            return;
        }
        // Whoever was there last may be about to park what it has: its lock comes first.
        match OWNERS.hand_over(stack, thread) {
            Some(before) if before.is_null() || before == thread => {}
            Some(before) => take_from(before, thread, stack),
            None => {
                for other in registry::all().filter(|&other| other != thread) {
                    take_from(other, thread, stack);
                }
            }
        }
        let parked = LOT.remove(stack);
        for activation in parked.activations() {
            take(thread, activation);
        }
        LOT.free(parked);
    }
}

/// Parks the activations of the stack that the thread was last seen on.
///
/// # Safety
/// The thread is the caller's, and its list locked, without any that others have taken over.
unsafe fn leave(thread: *mut Thread) {
    // SAFETY: the list is the caller's; it ends at the bottom.
    unsafe {
        let stack = match (*thread).current {
            0 => (*thread).home,
            current => current,
        };
        park_copies(thread, stack);
        // What stays goes to the places that have become free.
        let mut last = (*thread).bottom;
        for at in listed(thread) {
            if (*at).slot == SEPARATOR {
                continue;
            }
            if (*at).stack == stack {
                uncount(thread, (*at).function);
                continue;
            }
            last = (*last).next;
            activation::copy(at, last);
        }
        (*thread).top = last;
    }
}

/// What is in a thread's list, the outermost first; it may come to lie elsewhere in it or be left out once it
/// has been told.
pub(crate) unsafe fn listed(thread: *mut Thread) -> impl Iterator<Item = *mut Activation> {
    // SAFETY: the list is locked; the links between its places never change.
    unsafe {
        let last = (&raw const (*thread).top).read_volatile();
        let mut at = (*thread).bottom;
        core::iter::from_fn(move || {
            if at == last {
                return None;
            }
            at = (*at).next;
            Some(at)
        })
    }
}

/// The calls of a stack that are in a thread's list.
unsafe fn calls(thread: *mut Thread, stack: u64) -> impl Iterator<Item = *mut Activation> {
    // SAFETY: as for `listed`; what that tells of is valid.
    unsafe { listed(thread).filter(move |&at| (*at).stack == stack && (*at).slot < SEPARATOR) }
}

/// Parks copies of a stack's calls that are in a thread's list.
unsafe fn park_copies(thread: *mut Thread, stack: u64) {
    // SAFETY: as for `listed`.
    let calls = unsafe { calls(thread, stack) };
    LOT.insert(stack, LOT.copy(calls.map(<*mut Activation>::cast_const)));
}

/// Has the next calls of a stack find something that encloses them, and not what stays in the list of others.
unsafe fn separate(thread: *mut Thread, stack: u64) {
    // SAFETY: as for `leave`.
    unsafe {
        (*(*thread).bottom).stack = stack;
        let top = (*thread).top;
        if (*top).stack == stack || !has_room(thread) {
            return;
        }
        let new = (*top).next;
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
        if (*thread).link_more() {
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

/// Takes the activations of a stack from the list of another thread, which may be making calls on another stack
/// meanwhile: those change neither these activations nor any link.
unsafe fn take_from(from: *mut Thread, thread: *mut Thread, stack: u64) {
    // SAFETY: a known thread's list stays valid, and with its lock held only its owner's quick way
    // changes it, at its top, where activations of another stack are.
    unsafe {
        lock(from);
        for at in calls(from, stack) {
            take(thread, at);
            give_up(from, at);
        }
        forget(from, |known| known == stack);
        unlock(from);
    }
}

/// Parks the activations that a thread still has of a stack that it is no longer on, told by what it is known
/// by.
///
/// # Safety
/// The thread is known. The caller holds no lock, and the stack is nobody's who runs.
pub(crate) unsafe fn park(from: *mut Thread, is_stack: impl Fn(u64) -> bool) {
    // SAFETY: as for `take_from`.
    unsafe {
        lock(from);
        let stack = (*from).current;
        if is_stack(stack) {
            park_copies(from, stack);
            for at in calls(from, stack) {
                give_up(from, at);
            }
            forget(from, &is_stack);
        }
        unlock(from);
    }
}

/// Has a thread drop an activation from its list, which is locked, when it next locks it itself.
unsafe fn give_up(from: *mut Thread, activation: *mut Activation) {
    // SAFETY: the caller's promise.
    unsafe {
        (*activation).slot = TAKEN;
        (*activation).stack = 0;
        (*from).has_taken = 1;
    }
}

/// Has a thread, whose list is locked, come to a stack as if it had never been there.
unsafe fn forget(from: *mut Thread, is_stack: impl Fn(u64) -> bool) {
    // SAFETY: the caller's promise; calls there find no longer what encloses them, and go the slow way.
    unsafe {
        if is_stack((*from).current) {
            (*from).current = 0;
        }
        if is_stack((*(*from).bottom).stack) {
            (*(*from).bottom).stack = 0;
        }
        for at in listed(from) {
            if (*at).slot == SEPARATOR && is_stack((*at).stack) {
                (*at).stack = 0;
            }
        }
    }
}

/// Adds a copy of an activation to the calling thread's list, with a record of its own; it is lost where there
/// is no memory for it.
unsafe fn take(thread: *mut Thread, activation: *const Activation) {
    // SAFETY: the thread is the caller's; the activation is valid and nobody else's.
    unsafe {
        if !has_room(thread) {
            return;
        }
        let other = &*(*activation).record;
        let mut record = other;
        if other.thread.load(Ordering::Relaxed) != (*thread).index {
            let Some(own) = record_of(thread, other) else {
                return;
            };
            other.moved_out.fetch_add(1, Ordering::Relaxed);
            let got = &own.moved_in;
            got.store(got.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            record = own;
        }
        let new = (*(*thread).top).next;
        activation::copy(activation, new);
        (*new).record = record;
        let function = (*activation).function as usize % abi::MAX_FUNCTIONS;
        *(*thread).depths.add(function) += 1;
        (*thread).top = new;
    }
}

/// Closes calls that have ended with their stack, as unwound, and frees them.
///
/// # Safety
/// The thread is the caller's, which holds no lock; the chain is the caller's.
pub(crate) unsafe fn close(thread: *mut Thread, ended: Chain) {
    // SAFETY: the caller's promise. The innermost activation of the list is the one just taken.
    unsafe {
        for activation in ended.activations() {
            lock_own(thread);
            let before = (*thread).top;
            take(thread, activation);
            if (*thread).top != before {
                exit::leave(thread, (*thread).top);
            }
            unlock(thread);
        }
    }
    LOT.free(ended);
}

/// Makes a place that is the calling thread's all its own. The calls of the thread that had it before have ended
/// with that, but those of a coroutine that it was on.
///
/// # Safety
/// The thread is the caller's, which holds no lock, but has another id; signals are blocked.
pub(crate) unsafe fn renew(thread: *mut Thread) {
    // SAFETY: the caller's promise.
    unsafe {
        lock_own(thread);
        let current = (*thread).current;
        if current != 0 && current != (*thread).home {
            leave(thread);
        }
        exit::close_all(thread);
        forget(thread, |_| true);
        (*thread).home = 0;
        (*thread).moving.forget();
        // Its stacks may be gone, and those of this thread end elsewhere.
        let nowhere = StackRange { low: 0, high: 0 };
        (*thread).stack = nowhere;
        (*thread).stacks = [nowhere; STACKS];
        (*thread).set_quick();
        let tid = (*thread).owner.tid;
        let entry = &segment::thread((*thread).index).tid;
        entry.store((*thread).owner.kernel_tid, Ordering::Relaxed);
        (&raw mut (*thread).tid).write_volatile(tid);
        unlock(thread);
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
