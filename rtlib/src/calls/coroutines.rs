//! Stacks that are left and come back to, on the same thread or on another one: those of coroutines.
//!
//! A thread's list has the activations of the stack it was last seen on. When it comes to another one it
//! parks them (`lot.rs`), and takes what that one has: from there, or from the list of the thread that
//! was last there and has not yet been seen elsewhere. So it becomes the writer of their records. Calls
//! on a stack without a root of its own, such as those of a handler on an alternate stack, stay in the thread's list. Nothing here happens
//! in a program whose threads keep to one stack each.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::activation::{self, Activation};
use super::list::{
    Calls, SEPARATOR, TAKEN, all, listed, lock, lock_own, make_room, uncount, unlock,
};
use super::lot::{Chain, LOT};
use super::{closing, cost, overhead};
use crate::code::coroutines;
use crate::ledger::Ledger;
use crate::os::hash;
use crate::os::lock::Lock;

const BITS: u32 = 14;
const BUCKETS: usize = 1 << BITS;
/// Buckets that are looked at for one stack. Where none is free all threads are asked.
const PROBES: usize = 64;

struct Bucket {
    /// The stack; 0 while free.
    stack: AtomicU64,
    /// The list of its owner.
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
    /// Makes a thread the owner of a stack; the one before, null where there was none. `None` where there is
    /// no room.
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

/// 1 once every stack with calls has its owner: as long as no coroutine is known nobody sees to that.
static ARE_OWNED: AtomicU32 = AtomicU32::new(0);
/// Held while they are found.
static OWNING: Lock = Lock::new();

/// Finds the owners of the stacks that had calls before a coroutine was known. The caller holds no lock.
fn find_owners() {
    if ARE_OWNED.load(Ordering::Acquire) != 0 {
        return;
    }
    OWNING.lock();
    if ARE_OWNED.load(Ordering::Relaxed) == 0 {
        for owner in all() {
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
        ARE_OWNED.store(1, Ordering::Release);
    }
    OWNING.unlock();
}

/// Makes the list of the calling thread, which has come to `stack`, that of its calls. Runs on the private
/// stack, with signals blocked.
///
/// # Safety
/// List and ledger are the caller's, who runs on that stack and holds no lock.
pub unsafe fn arrive(calls: *mut Calls, ledger: &mut Ledger, stack: u64) {
    // SAFETY: the caller's promise.
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
        // Whoever was there last may be about to park what it has: its lock comes first.
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
    }
}

/// Parks the activations of the stack that the thread was last seen on.
///
/// # Safety
/// The thread is the caller's, and its list locked, without any that others have taken over.
unsafe fn leave(calls: *mut Calls) {
    // SAFETY: the list is the caller's; it ends at the bottom.
    unsafe {
        let stack = match (*calls).current {
            0 => (*calls).home,
            current => current,
        };
        park_copies(calls, stack);
        // What stays goes to the places that have become free.
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

/// The calls of a stack that are in a thread's list.
unsafe fn calls_of(calls: *mut Calls, stack: u64) -> impl Iterator<Item = *mut Activation> {
    // SAFETY: as for `listed`; what that tells of is valid.
    unsafe { listed(calls).filter(move |&at| (*at).stack == stack && (*at).slot < SEPARATOR) }
}

/// Parks copies of a stack's calls that are in a thread's list.
unsafe fn park_copies(calls: *mut Calls, stack: u64) {
    // SAFETY: as for `listed`.
    let (behind, calls) = unsafe { (behind(calls), calls_of(calls, stack)) };
    LOT.insert(
        stack,
        LOT.copy(calls.map(<*mut Activation>::cast_const), behind),
    );
}

/// Has the next calls of a stack find something that encloses them, and not what stays in the list of others.
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

/// Takes the activations of a stack from the list of another thread, which may be making calls on another stack
/// meanwhile: those change neither these activations nor any link.
unsafe fn take_from(from: *mut Calls, calls: *mut Calls, ledger: &mut Ledger, stack: u64) {
    // SAFETY: a known thread's list stays valid, and with its lock held only its owner's quick way
    // changes it, at its top, where activations of another stack are.
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

/// Parks the activations that a thread still has of a stack that it is no longer on, told by what it is known
/// by.
///
/// # Safety
/// The thread is known. The caller holds no lock, and the stack is nobody's who runs.
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

/// Has a thread drop an activation from its list, which is locked, when it next locks it itself.
unsafe fn give_up(from: *mut Calls, activation: *mut Activation) {
    // SAFETY: the caller's promise.
    unsafe {
        (*activation).slot = TAKEN;
        (*activation).stack = 0;
        (*from).has_taken = 1;
    }
}

/// Has a thread, whose list is locked, come to a stack as if it had never been there.
unsafe fn forget(from: *mut Calls, is_stack: impl Fn(u64) -> bool) {
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

/// By how much the clock of a list's thread is behind the time-stamp counter.
unsafe fn behind(calls: *const Calls) -> u64 {
    // SAFETY: lists stay valid, and the segment.
    unsafe { overhead::corrected(&*(*calls).overhead) }
}

/// Adds a copy of an activation to the calling thread's list, with a record of its own; it is lost where there
/// is no memory for it. The clock that it has begun by is `by_clock` behind the time-stamp counter.
///
/// # Safety
/// The list belongs to the caller. The activation is valid and has no other user.
pub(super) unsafe fn take(
    calls: *mut Calls,
    ledger: &mut Ledger,
    activation: *const Activation,
    by_clock: u64,
) {
    // SAFETY: the list is the caller's; the activation is valid and nobody else's.
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
            // One that has not been counted yet is counted where it ends.
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
/// List and ledger are the caller's, who holds no lock; the chain is the caller's.
pub(super) unsafe fn close(calls: *mut Calls, ledger: &mut Ledger, ended: Chain) {
    // SAFETY: the caller's promise. The innermost activation of the list is the one just taken.
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

/// Empties the list of a thread that has ended, for the one that has its place. The calls have ended with it, but
/// those of a coroutine that it was on.
///
/// # Safety
/// The list is the caller's, who holds no lock.
pub unsafe fn renew(calls: *mut Calls) {
    // SAFETY: the caller's promise.
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
