//! Stacks that share one memory range. A switch copies the old stack's slice to the heap, and the
//! new stack's slice back to its place. greenlet (and so gevent and eventlet), Stackless and PyPy
//! do this.
//!
//! Addresses do not distinguish the stacks: their slots are equal, and often their roots. So the
//! switch identifies the owner of the calls. As it leaves a stack, its calls are parked under a
//! hash of the words on that stack. They are taken back when the switch returns and finds the same
//! words.

use super::coroutines::take;
use super::left::Left;
use super::list::{Calls, SEPARATOR, listed, lock_own, uncount, unlock};
use super::lot::{Chain, LOT};
use super::overhead;
use crate::ledger::Ledger;

/// True if no stack that shares a memory range is parked. A switch then has no calls to take back.
#[inline(always)]
pub fn are_none_left() -> bool {
    !LOT.may_have_slices()
}

/// Parks the calls of the thread's stack, which is being switched from.
///
/// # Safety
/// The list belongs to the caller, which holds no lock.
pub unsafe fn leave(calls: *mut Calls, left: Left) {
    // SAFETY: see above; the list ends at the bottom.
    unsafe {
        lock_own(calls);
        let behind = overhead::corrected(&*(*calls).overhead);
        let own = || listed(calls).filter(|&at| (*at).slot < SEPARATOR);
        let chain = LOT.copy(own().map(<*mut _>::cast_const), behind);
        for at in own() {
            uncount(calls, (*at).function);
        }
        (*calls).top = (*calls).bottom;
        (*calls).left = left;
        unlock(calls);
        LOT.insert(left.long, chain);
    }
}

/// Takes back the calls of the stack with this identity, which is being switched to. If
/// `may_begin`, the switch may instead have started a new stack directly below the old one, with
/// the same words.
///
/// # Safety
/// The list and the ledger belong to the caller, which holds no lock.
pub unsafe fn arrive(calls: *mut Calls, ledger: &mut Ledger, left: Left, may_begin: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let is_same = (*calls).left == left;
        (*calls).left = Left::NONE;
        if is_same && may_begin {
            // The new stack changes outer frames, which the switch does not save. So the short
            // hash, over fewer words, identifies the waiting stack from now on.
            LOT.insert(left.short, LOT.remove(left.long));
            return;
        }
        let mut parked = LOT.remove(left.long);
        if parked.is_empty() {
            parked = LOT.remove(left.short);
        }
        take_all(calls, ledger, parked);
    }
}

/// Adds the calls of a chain to the list, and frees the chain.
unsafe fn take_all(calls: *mut Calls, ledger: &mut Ledger, parked: Chain) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        lock_own(calls);
        for activation in parked.activations() {
            take(calls, ledger, activation, 0);
        }
        unlock(calls);
    }
    LOT.free(parked);
}
