//! A thread's activations, the innermost first.
//!
//! Only the thread itself adds and removes activations, at the top and without a lock: the stubs do
//! so. All other changes, including those from other threads, hold the list's lock. So these
//! functions take a list by its address.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use abi::probe::{Kind, LENDING, LENDS};
use abi::segment::RecordHead;
use abi::shortage::Shortage;

use super::activation::{self, Activation, MOST_LENT, NUMBER_SHIFT, doubted, lent};
pub use super::activation::{BOTTOM, SEPARATOR, TAKEN, is_current};
use super::cost::{self, Ended};
use super::left::Left;
use super::lot::Chain;
use super::meter::Meter;
use super::phases;
use crate::code::coroutines;
use crate::os::lock::Lock;
use crate::os::memory;
use crate::os::parameters;
use crate::walk::StackRange;

/// Activations that a thread has room for at first. Further memory is mapped in units of this size.
const ACTIVATIONS: u64 = 256;
/// Activations of the first unit that are linked at a time. The others do not take up memory.
const LINKED: u64 = 32;

const TABLE_BYTES: u64 = size_of::<Activation>() as u64 * ACTIVATIONS;
/// Byte offset of the depths of functions in the list's memory. The first depths and the first
/// activations are at different offsets within a page. Every call stores to both, and processors
/// delay a load if it seems to depend on a store to the same offset in another page ("4K aliasing",
/// Intel's optimization manual 15.8).
const DEPTHS: u64 = TABLE_BYTES.next_multiple_of(abi::PAGE) + abi::PAGE / 2;
/// Bytes that a thread's list needs at first, in addition to [`Calls`].
pub const BYTES: u64 = DEPTHS + size_of::<u32>() as u64 * abi::MAX_FUNCTIONS as u64;

/// A thread's list.
#[repr(C)]
pub struct Calls {
    /// Innermost activation.
    pub top: *mut Activation,
    /// The number of activations of each function in the list.
    pub depths: *mut u32,
    /// The measurement overhead of the thread ([`super::overhead`]).
    pub overhead: *const AtomicU64,
    /// Held during all changes other than those at the top.
    lock: Lock,
    /// 1 if another thread has taken over activations.
    pub(super) has_taken: u32,
    /// The first stack on which the thread was seen; 0 until then.
    pub home: u64,
    /// The stack whose calls the list contains; 0 for the first stack or an unknown one.
    pub(super) current: u64,
    /// The bottom of the list, which is no activation: the first of [`ACTIVATIONS`] adjacent ones.
    pub(super) bottom: *mut Activation,
    /// The number of activations at `bottom` that have been linked.
    linked: u64,
    /// The stack that the thread is copying.
    pub(super) moving: Moving,
    /// The identity of the stack from which the thread last switched, if its memory range is
    /// shared; otherwise [`Left::NONE`].
    pub(super) left: Left,
    /// The phase of the innermost call that is one; [`abi::segment::OUTSIDE`] if there is none.
    pub phase: u32,
    _padding: u32,
    /// The list that was created before this one.
    made_before: *mut Calls,
}

/// A goroutine's stack while it moves, kept by the thread that copies it ([`super::moving`]).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Moving {
    /// The goroutine; 0 if no calls must be moved.
    pub(super) goroutine: u64,
    /// The generation of the probe that reported the move. Exits of other generations do not end
    /// it.
    pub(super) generation: u32,
    /// The stack's memory before the move.
    pub(super) from: StackRange,
    /// The activations of the stack that moves.
    pub(super) chain: Chain,
}

impl Moving {
    /// Abandons the move, because the thread has ended.
    pub(super) fn forget(&mut self) {
        self.goroutine = 0;
    }
}

/// All lists, the newest first.
static ALL: AtomicPtr<Calls> = AtomicPtr::new(ptr::null_mut());

/// The lists of all threads that the runtime has seen. They stay valid.
pub fn all() -> impl Iterator<Item = *mut Calls> {
    let mut next = ALL.load(Ordering::Acquire);
    core::iter::from_fn(move || {
        let calls = next;
        if calls.is_null() {
            return None;
        }
        // SAFETY: lists stay valid, including the older ones that they link to.
        next = unsafe { (*calls).made_before };
        Some(calls)
    })
}

/// Turns zeroed memory into an empty list, and adds it to the list of lists.
///
/// # Safety
/// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8. It and `calls` stay valid,
/// and have no other user. One thread at a time calls this function.
pub unsafe fn begin(calls: *mut Calls, base: u64, overhead: &'static AtomicU64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (*calls).depths = (base + DEPTHS) as *mut u32;
        (*calls).overhead = overhead;
        (*calls).top = base as *mut Activation;
        (*calls).bottom = (*calls).top;
        link_more(calls);
        (*(*calls).top).slot = BOTTOM;
        (*(*calls).top).function = u32::MAX;
        (*calls).made_before = ALL.load(Ordering::Relaxed);
    }
    ALL.store(calls, Ordering::Release);
}

/// Excludes other users of a list, except the fast paths of its own thread. Signals are blocked.
///
/// # Safety
/// The caller does not hold the list's lock.
pub unsafe fn lock(calls: *mut Calls) {
    // SAFETY: guaranteed by the caller; the lock is an atomic.
    unsafe { (*calls).lock.lock() };
}

/// Releases the list's lock.
///
/// # Safety
/// The caller holds the lock.
pub unsafe fn unlock(calls: *mut Calls) {
    // SAFETY: guaranteed by the caller.
    unsafe { (*calls).lock.unlock() };
}

/// Locks the caller's list and drops the activations that other threads have taken over.
///
/// # Safety
/// As for [`lock`]; the list belongs to the caller.
pub unsafe fn lock_own(calls: *mut Calls) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        lock(calls);
        if (*calls).has_taken == 0 {
            return;
        }
        (*calls).has_taken = 0;
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            let prev = (*at).prev;
            if (*at).slot == TAKEN {
                pop(calls, raise(calls, at));
            }
            at = prev;
        }
    }
}

/// The entries of a list, the outermost first. The caller may move or remove an entry that it has
/// received.
///
/// # Safety
/// The list is locked.
pub(super) unsafe fn listed(calls: *mut Calls) -> impl Iterator<Item = *mut Activation> {
    // SAFETY: the links between its places never change.
    unsafe {
        let last = (&raw const (*calls).top).read_volatile();
        let mut at = (*calls).bottom;
        core::iter::from_fn(move || {
            if at == last {
                return None;
            }
            at = (*at).next;
            Some(at)
        })
    }
}

/// True if a list has no activation.
///
/// # Safety
/// The list belongs to the caller.
#[inline(always)]
pub unsafe fn is_empty(calls: *mut Calls) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { (*(*calls).top).slot == BOTTOM }
}

/// True if the thread's calls are on its first stack, as far as known. That stack has more room
/// than the stack of a coroutine.
///
/// # Safety
/// The list belongs to the caller.
#[inline(always)]
pub unsafe fn is_at_home(calls: *const Calls) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { (*calls).home != 0 && !coroutines::are_known() }
}

/// True if the end of this activation is not seen any more: its function was removed or is only
/// counted since.
///
/// # Safety
/// The activation is valid, and of a function.
pub unsafe fn is_stale(activation: *mut Activation) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { !is_current(activation) || parameters::kind((*activation).function) == Kind::Entry }
}

/// Takes activations whose ends are not seen off the top of the list. Their calls stay open.
///
/// # Safety
/// The list belongs to the caller, and is locked.
pub unsafe fn drop_stale(calls: *mut Calls) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        while (*(*calls).top).slot < SEPARATOR && is_stale((*calls).top) {
            pop(calls, (*calls).top);
            (*calls).phase = phases::of((*calls).top);
        }
    }
}

/// The record of the innermost open call whose function is on the stack; `None` if there is none.
///
/// # Safety
/// The list belongs to the caller.
pub unsafe fn caller(calls: *const Calls) -> Option<&'static RecordHead> {
    // SAFETY: the list ends at the bottom; records stay valid.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot < SEPARATOR && (activation::is_lent((*at).slot) || is_stale(at)) {
            at = (*at).prev;
        }
        ((*at).slot < SEPARATOR).then(|| &*(*at).record)
    }
}

/// The innermost activation of `function` with its return address at `slot`; null if there is none.
///
/// # Safety
/// The list belongs to the caller. It is locked if the activation must stay in its place.
pub unsafe fn find(calls: *mut Calls, function: u32, slot: u64) -> *mut Activation {
    // SAFETY: the list ends at the bottom.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            if (*at).slot == slot && (*at).function == function {
                return at;
            }
            at = (*at).prev;
        }
        ptr::null_mut()
    }
}

/// The innermost activation that was lent to the return through `slot`; null if there is none.
///
/// # Safety
/// As for [`find`].
pub unsafe fn find_lent(calls: *mut Calls, slot: u64) -> *mut Activation {
    // SAFETY: the list ends at the bottom.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            if (*at).slot == lent(slot) {
                return at;
            }
            at = (*at).prev;
        }
        ptr::null_mut()
    }
}

/// Leaves activations open, because their end is not seen: that of `function` with its return
/// address at `slot`, and unless it is a span, those lent to the same return. The caller may have
/// interrupted a call that is changing the list.
///
/// # Safety
/// The list belongs to the calling thread.
#[cold]
pub unsafe fn leave_open(calls: *mut Calls, function: u32, slot: u64, is_span: bool) {
    /// A generation that no function has.
    const NEVER: u32 = u32::MAX;
    // SAFETY: the links between a list's places never change; the caller guarantees the rest.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            let is_there = (*at).slot == slot || (*at).slot == doubted(slot);
            let is_own = is_there && (*at).function == function;
            if is_own || !is_span && (*at).slot == lent(slot) {
                (*at).generation = NEVER;
            }
            at = (*at).prev;
        }
    }
}

/// Lends the innermost activation, whose function leaves by a tail call, to the callee. Returns
/// false, without an effect, if the activation must end now.
///
/// # Safety
/// The list belongs to the caller, and `top` is not its bottom.
#[inline(always)]
pub unsafe fn lend(calls: *mut Calls, top: *mut Activation) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let lending = parameters::lending((*top).function);
        // The code that ends the activation only looks at the top of the list.
        if top != (*calls).top || lending & LENDS == 0 || coroutines::are_known() {
            return false;
        }
        let below = (*top).prev;
        let before = if (*below).slot == lent((*top).slot) {
            (*below).lent & ((1 << NUMBER_SHIFT) - 1)
        } else {
            0
        };
        if before >= MOST_LENT {
            return false;
        }
        (*top).lent = u32::from(lending & LENDING) << NUMBER_SHIFT | (before + 1);
        (*top).slot = lent((*top).slot);
        true
    }
}

/// True if a return of `function` ends this lent activation. False if the group of functions has
/// changed since, or if there are coroutines: the activation may then have been on another thread.
///
/// # Safety
/// The activation is valid, and has been lent.
#[inline(always)]
pub unsafe fn is_lent_to(activation: *mut Activation, function: u32) -> bool {
    // SAFETY: guaranteed by the caller.
    let lent = unsafe { (*activation).lent };
    let number = (lent >> NUMBER_SHIFT) as u16;
    parameters::lending(function) & LENDING == number && !coroutines::are_known()
}

/// True if the group of functions in which this activation was lent has not changed since.
///
/// # Safety
/// As for [`is_lent_to`].
pub(super) unsafe fn is_group_unchanged(activation: *mut Activation) -> bool {
    // SAFETY: guaranteed by the caller.
    let (function, lent) = unsafe { ((*activation).function, (*activation).lent) };
    parameters::lending(function) & LENDING == (lent >> NUMBER_SHIFT) as u16
}

/// The enclosing activation. For the innermost activation that is the next one below; for others,
/// the next one below on the same stack, or the bottom.
///
/// # Safety
/// The list belongs to the caller, is locked, and contains the activation.
pub unsafe fn enclosing(calls: *mut Calls, activation: *mut Activation) -> *mut Activation {
    // SAFETY: the list ends at the bottom.
    unsafe {
        let mut at = (*activation).prev;
        if activation != (*calls).top {
            while (*at).slot != BOTTOM && (*at).stack != (*activation).stack {
                at = (*at).prev;
            }
        }
        at
    }
}

/// Moves the activation `wanted` to the top of the list, and returns its new place. The order of
/// the others is unchanged. The links between places never change, so their contents are moved.
///
/// # Safety
/// `wanted` is on the list, which the caller has locked.
pub unsafe fn raise(calls: *mut Calls, wanted: *mut Activation) -> *mut Activation {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut at = wanted;
        while at != (*calls).top {
            let above = (*at).next;
            activation::swap(at, above);
            at = above;
        }
        at
    }
}

/// Removes the innermost activation from the list.
///
/// # Safety
/// The list belongs to the caller. `top` is its innermost activation, and not the bottom.
#[inline(always)]
pub unsafe fn pop(calls: *mut Calls, top: *mut Activation) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        uncount(calls, (*top).function);
        (*calls).top = (*top).prev;
    }
}

/// Subtracts an activation of `function` from the list's `depths`.
///
/// # Safety
/// The list belongs to the caller.
#[inline(always)]
pub(super) unsafe fn uncount(calls: *mut Calls, function: u32) {
    // SAFETY: function ids are below MAX_FUNCTIONS, as many as `depths` has.
    unsafe {
        let depth = (*calls).depths.add(function as usize % abi::MAX_FUNCTIONS);
        *depth = (*depth).saturating_sub(1);
    }
}

/// Recounts the activations of each function. A jump out of a signal handler may have interrupted
/// the entry of a call after it was counted and before it was listed, or the end of a call.
///
/// # Safety
/// The list belongs to the caller, and no activation is added or removed meanwhile.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn recount(calls: *mut Calls) {
    // SAFETY: function ids are below MAX_FUNCTIONS, the length of `depths`; the rest is guaranteed
    // by the caller.
    unsafe {
        let depths = core::slice::from_raw_parts_mut((*calls).depths, abi::MAX_FUNCTIONS);
        // Pages of functions without calls are not touched, so they take up no memory.
        depths.iter_mut().filter(|d| **d != 0).for_each(|d| *d = 0);
        for at in listed(calls).filter(|&at| (*at).slot != SEPARATOR) {
            depths[(*at).function as usize % abi::MAX_FUNCTIONS] += 1;
        }
    }
}

/// Adds an activation of `function` on top of the list and returns it. The caller counts the call
/// and reads its sources.
///
/// # Safety
/// The list belongs to the caller and has a free activation.
pub unsafe fn push(
    calls: *mut Calls,
    function: u32,
    slot: u64,
    stack: u64,
    record: &'static RecordHead,
) -> *mut Activation {
    // SAFETY: function ids are below MAX_FUNCTIONS, as many as `depths` has.
    unsafe {
        let depth = (*calls).depths.add(function as usize % abi::MAX_FUNCTIONS);
        let new = (*(*calls).top).next;
        (*new).slot = slot;
        (*new).stack = stack;
        (*new).nested = 0;
        (*new).record = record;
        (*new).function = function;
        (*new).generation = parameters::generation(function);
        (*new).outermost = u32::from(*depth == 0);
        *depth += 1;
        (*calls).top = new;
        new
    }
}

/// Ends the innermost activation `top`, as returned within `caller`, or with `TAIL` as left by a
/// tail call. Without `ALL`, returns false and has no effect if the call must be ended on another
/// stack. Otherwise returns true.
///
/// # Safety
/// The list and the meter belong to the caller, the meter has begun, and `top` is not the bottom of
/// the list.
#[inline(always)]
pub unsafe fn end<const ALL: bool, const TAIL: bool>(
    calls: *mut Calls,
    top: *mut Activation,
    caller: *mut Activation,
    meter: &mut Meter,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let is_phase = parameters::is_phase((*top).function);
        if is_phase && !ALL {
            return false;
        }
        let is_current = is_current(top);
        let ended = if ALL {
            cost::end_any::<true>(meter, top, caller, is_current, TAIL)
        } else if cost::is_timed_alone(top) {
            if cost::end_timed(meter, top, is_current, TAIL) {
                Ended::Counted
            } else {
                Ended::Later
            }
        } else if is_at_home(calls) {
            cost::ipath_end_at_home(meter, top, TAIL)
        } else {
            Ended::Later
        };
        if ended == Ended::Later {
            return false;
        }
        cost::pass_on(meter, top, caller, is_current && ended == Ended::Counted);
        pop(calls, top);
        if is_phase {
            phases::leave(&raw mut (*calls).phase, (*calls).top, &*(*top).record);
        }
        true
    }
}

/// Ensures that the list has a free activation.
///
/// # Errors
/// There is no memory for an activation.
///
/// # Safety
/// The list belongs to the caller.
pub unsafe fn make_room(calls: *mut Calls) -> Result<(), Shortage> {
    // SAFETY: guaranteed by the caller; new memory has no other user.
    unsafe {
        if !(*(*calls).top).next.is_null() || link_more(calls) {
            return Ok(());
        }
        let first = memory::map(TABLE_BYTES)? as *mut Activation;
        activation::link(first, ACTIVATIONS as usize, (*calls).top);
        Ok(())
    }
}

/// Links some more of the first activations after the innermost one, which is the last linked one.
/// False if all are linked.
///
/// # Safety
/// The list belongs to the caller, and has the memory for them.
unsafe fn link_more(calls: *mut Calls) -> bool {
    // SAFETY: activations that are not linked yet are zeroed and unused; the rest is guaranteed by
    // the caller.
    unsafe {
        if (*calls).linked == ACTIVATIONS {
            return false;
        }
        let last = match (*calls).linked {
            0 => ptr::null_mut(),
            _ => (*calls).top,
        };
        let first = (*calls).bottom.add((*calls).linked as usize);
        activation::link(first, LINKED as usize, last);
        (*calls).linked += LINKED;
        true
    }
}
