//! Coroutines: stacks that a thread leaves and that later continue, on the same or another thread.
//!
//! The list of a thread contains the activations of the stack on which it was last seen. When the
//! thread appears on another stack, it parks them (`lot.rs`) and takes over the activations of the
//! new stack. These are parked, or in the list of the last thread on that stack, if it has not yet
//! been seen elsewhere. The thread thereby becomes the writer of their records. Calls on a stack
//! without a root of its own, such as those of a handler on an alternate stack, stay in the
//! thread's list. If every thread keeps to one stack, nothing here happens.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::activation::{self, Activation};
use super::list::{
    Calls, SEPARATOR, TAKEN, all, listed, lock, lock_own, make_room, uncount, unlock,
};
use super::lot::{Chain, LOT};
use super::{closing, cost, overhead, phases};
use crate::code::coroutines;
use crate::ledger::Ledger;
use crate::os::hash;
use crate::os::lock::Lock;

const BITS: u32 = 14;
const BUCKETS: usize = 1 << BITS;
/// The number of buckets searched for a stack. If none of them is free, the lists of all threads
/// are searched.
const PROBES: usize = 64;

/// A stack and its owner: the thread that was last seen on it.
struct Bucket {
    /// The identity of the stack; 0 while the bucket is free.
    stack: AtomicU64,
    /// The address of the list of activations of the stack's owner.
    calls: AtomicU64,
}

/// The owner of each stack.
struct Owners([Bucket; BUCKETS]);

static OWNERS: Owners = Owners(
    [const {
        Bucket {
            stack: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }; BUCKETS],
);

impl Owners {
    /// Makes a thread the owner of a stack. Returns the owner before, or null if there was none.
    /// `None` if there is no free bucket.
    fn hand_over(&self, stack: u64, to: *mut Calls) -> Option<*mut Calls> {
        let first = hash::bucket(stack, BITS);
        for at in first..first + PROBES {
            let bucket = &self.0[at % BUCKETS];
            let free =
                bucket
                    .stack
                    .compare_exchange(0, stack, Ordering::Relaxed, Ordering::Relaxed);
            if free.is_ok() || free == Err(stack) {
                return Some(bucket.calls.swap(to as u64, Ordering::AcqRel) as *mut Calls);
            }
        }
        None
    }
}

/// 1 once every stack with calls has an owner. Owners are not kept until a coroutine is seen.
static ARE_OWNED: AtomicU32 = AtomicU32::new(0);
/// Held while the owners are found.
static OWNING: Lock = Lock::new();

/// Registers the owners of the stacks that had calls before the first coroutine was seen. The
/// caller holds no lock.
fn find_owners() {
    if ARE_OWNED.load(Ordering::Acquire) != 0 {
        return;
    }
    OWNING.lock();
    if ARE_OWNED.load(Ordering::Relaxed) == 0 {
        for owner in all() {
            // SAFETY: the list of a known thread stays valid. With its lock held, only its owner's
            // fast path changes it, at its top.
            unsafe {
                lock(owner);
                for at in listed(owner) {
                    OWNERS.hand_over((*at).stack, owner);
                }
                unlock(owner);
            }
        }
        ARE_OWNED.store(1, Ordering::Release);
    }
    OWNING.unlock();
}

/// Makes the list of the calling thread, which runs on `stack`, contain the calls of that stack.
/// Does nothing if no coroutine has been seen. Runs on the private stack, with signals blocked.
///
/// # Safety
/// The list and the ledger belong to the caller, which runs on that stack and holds no lock.
pub unsafe fn arrive(calls: *mut Calls, ledger: &mut Ledger, stack: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let is_there = (*calls).current == stack;
        if !coroutines::are_known() || is_there && (*(*calls).top).stack == stack {
            return;
        }
        find_owners();
        lock_own(calls);
        if !is_there {
            leave(calls);
            (*calls).current = stack;
        }
        separate(calls, stack);
        unlock(calls);
        if is_there {
            return;
        }
        // The previous owner may be about to park the activations, so its list's lock is taken
        // before the lot's.
        match OWNERS.hand_over(stack, calls) {
            Some(before) if before.is_null() || before == calls => {}
            Some(before) => take_from(before, calls, ledger, stack),
            None => {
                for other in all().filter(|&other| other != calls) {
                    take_from(other, calls, ledger, stack);
                }
            }
        }
        let parked = LOT.remove(stack);
        for activation in parked.activations() {
            take(calls, ledger, activation, 0);
        }
        LOT.free(parked);
        (*calls).phase = phases::of((*calls).top);
    }
}

/// Parks the activations of the stack that the thread was last seen on.
///
/// # Safety
/// The thread belongs to the caller. Its list is locked, without activations that other threads
/// have taken over.
unsafe fn leave(calls: *mut Calls) {
    // SAFETY: the list belongs to the caller; it ends at the bottom.
    unsafe {
        let stack = match (*calls).current {
            0 => (*calls).home,
            current => current,
        };
        park_copies(calls, stack);
        // Remaining activations move to the places that have become free.
        let mut last = (*calls).bottom;
        for at in listed(calls) {
            if (*at).slot == SEPARATOR {
                continue;
            }
            if (*at).stack == stack {
                uncount(calls, (*at).function);
                continue;
            }
            last = (*last).next;
            if at != last {
                activation::swap(at, last);
            }
        }
        (*calls).top = last;
    }
}

/// The calls of a stack in a thread's list.
unsafe fn calls_of(calls: *mut Calls, stack: u64) -> impl Iterator<Item = *mut Activation> {
    // SAFETY: as for `listed`; the activations that it returns are valid.
    unsafe { listed(calls).filter(move |&at| (*at).stack == stack && (*at).slot < SEPARATOR) }
}

/// Parks copies of a stack's calls in a thread's list.
unsafe fn park_copies(calls: *mut Calls, stack: u64) {
    // SAFETY: as for `listed`.
    let (behind, calls) = unsafe { (behind(calls), calls_of(calls, stack)) };
    LOT.insert(
        stack,
        LOT.copy(calls.map(<*mut Activation>::cast_const), behind),
    );
}

/// Adds a separator, so that the next calls of a stack find it as their enclosing activation,
/// instead of an activation of another stack.
unsafe fn separate(calls: *mut Calls, stack: u64) {
    // SAFETY: as for `leave`.
    unsafe {
        (*(*calls).bottom).stack = stack;
        let top = (*calls).top;
        if (*top).stack == stack || make_room(calls).is_err() {
            return;
        }
        let new = (*top).next;
        (*new).slot = SEPARATOR;
        (*new).stack = stack;
        (*new).nested = 0;
        (*new).record = ptr::null();
        (*new).function = u32::MAX;
        (*new).generation = u32::MAX;
        (*calls).top = new;
    }
}

/// Takes the activations of a stack from the list of another thread. That thread may be making
/// calls on another stack meanwhile, which change neither these activations nor any link.
unsafe fn take_from(from: *mut Calls, calls: *mut Calls, ledger: &mut Ledger, stack: u64) {
    // SAFETY: the list of a known thread stays valid. With its lock held, only its owner's fast
    // path changes it, at its top, among activations of another stack.
    unsafe {
        lock(from);
        for at in calls_of(from, stack) {
            take(calls, ledger, at, behind(from));
            give_up(from, at);
        }
        forget(from, |known| known == stack);
        unlock(from);
    }
}

/// Parks a thread's remaining activations of a stack that it has left. `is_stack` identifies the
/// stack.
///
/// # Safety
/// The thread is known. The caller holds no lock, and no thread runs on the stack.
pub(crate) unsafe fn park(from: *mut Calls, is_stack: impl Fn(u64) -> bool) {
    // SAFETY: as for `take_from`.
    unsafe {
        lock(from);
        let stack = (*from).current;
        if is_stack(stack) {
            park_copies(from, stack);
            for at in calls_of(from, stack) {
                give_up(from, at);
            }
            forget(from, &is_stack);
        }
        unlock(from);
    }
}

/// Marks an activation in a locked list as taken. The list's thread drops it when it next locks the
/// list.
unsafe fn give_up(from: *mut Calls, activation: *mut Activation) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (*activation).slot = TAKEN;
        (*activation).stack = 0;
        (*from).has_taken = 1;
    }
}

/// Makes a thread whose list is locked forget that it was on a stack.
unsafe fn forget(from: *mut Calls, is_stack: impl Fn(u64) -> bool) {
    // SAFETY: guaranteed by the caller; later calls there find no enclosing activation and take the
    // slow path.
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

/// The lag of the thread clock of a list behind the time-stamp counter, in ticks.
unsafe fn behind(calls: *const Calls) -> u64 {
    // SAFETY: lists stay valid, and the segment.
    unsafe { overhead::corrected(&*(*calls).overhead) }
}

/// Adds a copy of an activation to the calling thread's list, with a record of its own. The copy is
/// lost if there is no memory. `by_clock` is the lag of the clock by which `activation` was
/// measured, another thread's, behind the time-stamp counter, in ticks.
///
/// # Safety
/// The list belongs to the caller. The activation is valid and has no other user.
pub(super) unsafe fn take(
    calls: *mut Calls,
    ledger: &mut Ledger,
    activation: *const Activation,
    by_clock: u64,
) {
    // SAFETY: the list belongs to the caller. The activation is valid and has no other user.
    unsafe {
        if make_room(calls).is_err() {
            return;
        }
        let other = &*(*activation).record;
        let mut record = other;
        if !ledger.owns(other) {
            let Ok(own) = ledger.find_or_make_like(other) else {
                return;
            };
            // A call that has not been counted yet is counted at its end.
            if !cost::is_decided_at_exit(other) {
                other.moved_out.fetch_add(1, Ordering::Relaxed);
                let got = &own.moved_in;
                got.store(got.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            record = own;
        }
        let new = (*(*calls).top).next;
        activation::copy(activation, new);
        (*new).record = record;
        let by_own = by_clock.wrapping_sub(behind(calls));
        (*new).start = (*new).start.wrapping_add(by_own);
        let function = (*activation).function as usize % abi::MAX_FUNCTIONS;
        *(*calls).depths.add(function) += 1;
        (*calls).top = new;
    }
}

/// Closes calls that have ended with their stack, as unwound, and frees them.
///
/// # Safety
/// The list, the ledger and the chain belong to the caller, which holds no lock.
pub(super) unsafe fn close(calls: *mut Calls, ledger: &mut Ledger, ended: Chain) {
    // SAFETY: guaranteed by the caller. The innermost activation of the list is the one just taken.
    unsafe {
        for activation in ended.activations() {
            lock_own(calls);
            let before = (*calls).top;
            take(calls, ledger, activation, 0);
            if (*calls).top != before {
                closing::leave(calls, (*calls).top);
            }
            unlock(calls);
        }
    }
    LOT.free(ended);
}

/// Empties the list of a thread that has ended, for the next thread in its place. Its calls have
/// ended with it, except those of a coroutine that it was on.
///
/// # Safety
/// The list belongs to the caller, which holds no lock.
pub unsafe fn renew(calls: *mut Calls) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        lock_own(calls);
        let current = (*calls).current;
        if current != 0 && current != (*calls).home {
            leave(calls);
        }
        closing::close_all(calls);
        forget(calls, |_| true);
        (*calls).home = 0;
        (*calls).moving.forget();
        unlock(calls);
    }
}
