//! Stacks that take turns in one memory: who switches copies what is in the way elsewhere and the other one's slice back to where it
//! was, as greenlet does (and so gevent and eventlet), Stackless and PyPy.
//!
//! Nothing of such a stack tells it from the others: their slots are the same, and often their roots. So whoever makes the calls of one
//! is known by the switch: its calls are parked as it leaves, under what it leaves on the stack, and taken back when the switch
//! comes out with the same there.

use super::coroutines::take;
use super::left::Left;
use super::list::{Calls, SEPARATOR, listed, lock_own, uncount, unlock};
use super::lot::{Chain, LOT};
use super::overhead;
use crate::ledger::Ledger;

/// Whether the switch to a stack has nothing to see to: none has been left with calls.
#[inline(always)]
pub fn are_none_left() -> bool {
    !LOT.may_have_slices()
}

/// Parks the thread's calls: the stack that has made them is switched from.
///
/// # Safety
/// The list is the caller's, who holds no lock.
pub unsafe fn leave(calls: *mut Calls, left: Left) {
    // SAFETY: the caller's promise; the list ends at the bottom.
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

/// Takes back the calls of the stack that has left this, and is switched to. With `may_begin` the switch may also have begun a new
/// stack right below the one that it has come from, which goes on as if it were that one.
///
/// # Safety
/// List and ledger are the caller's, who holds no lock.
pub unsafe fn arrive(calls: *mut Calls, ledger: &mut Ledger, left: Left, may_begin: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        let is_same = (*calls).left == left;
        (*calls).left = Left::NONE;
        if is_same && may_begin {
            // What begins changes frames further out, which are not among those that are copied: fewer words tell the one that waits.
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

unsafe fn take_all(calls: *mut Calls, ledger: &mut Ledger, parked: Chain) {
    // SAFETY: the caller's promise.
    unsafe {
        lock_own(calls);
        for activation in parked.activations() {
            take(calls, ledger, activation, 0);
        }
        unlock(calls);
    }
    LOT.free(parked);
}
