//! A thread's activations, the innermost first.
//!
//! Only the thread itself adds and removes, at the top, with no lock: the stubs do. Whoever changes the list
//! otherwise, from another thread too, holds its lock. So these functions take it by its address.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use abi::probe::{LENDING, LENDS};
use abi::segment::RecordHead;
use abi::shortage::Shortage;

use super::activation::{self, Activation, MOST_LENT, NUMBER_SHIFT, doubted, lent};
use super::cost::{self, Ended};
use super::left::Left;
use super::lot::Chain;
use super::meter::Meter;
use crate::code::coroutines;
use crate::os::lock::Lock;
use crate::os::memory;
use crate::os::parameters;
use crate::walk::StackRange;

/// Slot of what stands in a list above what stays in it when the thread comes to another stack, above every
/// address. Calls of the stack that it bears find it as what encloses them.
pub const SEPARATOR: u64 = u64::MAX - 7;
/// Slot of an activation that another thread has taken over.
pub const TAKEN: u64 = 0;
/// Slot of the bottom of the list, which encloses every call.
pub const BOTTOM: u64 = u64::MAX;

/// Activations that a thread has room for at first, and that more memory is mapped for each time.
const ACTIVATIONS: u64 = 256;
/// Of the first, those that are linked at a time: the rest takes no memory.
const LINKED: u64 = 32;

const TABLE_BYTES: u64 = size_of::<Activation>() as u64 * ACTIVATIONS;
/// Where the depths of functions begin: those of the first ones share no place in their page with the first activations.
/// Each call stores to both, and processors take a load for one that must wait for a store to the same place in another
/// page ("4K aliasing", Intel's optimization manual 15.8).
const DEPTHS: u64 = TABLE_BYTES.next_multiple_of(abi::PAGE) + abi::PAGE / 2;
/// Bytes that a thread's list takes at first besides the [`Calls`].
pub const BYTES: u64 = DEPTHS + size_of::<u32>() as u64 * abi::MAX_FUNCTIONS as u64;

/// A thread's list.
#[repr(C)]
pub struct Calls {
    /// Innermost activation.
    pub top: *mut Activation,
    /// Activations per function, of those in the list.
    pub depths: *mut u32,
    /// What measuring has taken on the thread ([`super::overhead`]).
    pub overhead: *const AtomicU64,
    /// Held by whoever changes the list otherwise than at its top.
    lock: Lock,
    /// 1 where another thread has taken activations over.
    pub(super) has_taken: u32,
    /// The first stack the thread was seen on; 0 while none.
    pub home: u64,
    /// The stack that the list is of; 0 where that is the first one, or not known.
    pub(super) current: u64,
    /// The bottom of the list, which has no activation: the first of [`ACTIVATIONS`] that lie one after the other.
    pub(super) bottom: *mut Activation,
    /// How many of those have been linked.
    linked: u64,
    /// The stack that the thread is copying.
    pub(super) moving: Moving,
    /// The identity of the stack that the thread has last switched from in its memory range.
    pub(super) left: Left,
    /// The list that was made before it.
    made_before: *mut Calls,
}

/// A goroutine's stack on its way, kept by the thread that copies it ([`super::moving`]).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Moving {
    /// The goroutine; 0 while there is none whose calls must be moved.
    pub(super) goroutine: u64,
    /// The generation of the probe that was told: the exits of another one are not this one's.
    pub(super) generation: u32,
    /// Where it was.
    pub(super) from: StackRange,
    /// Its activations.
    pub(super) chain: Chain,
}

impl Moving {
    /// Ends what has been begun: the thread is gone.
    pub(super) fn forget(&mut self) {
        self.goroutine = 0;
    }
}

/// All lists, the last one first.
static ALL: AtomicPtr<Calls> = AtomicPtr::new(ptr::null_mut());

/// The lists of all threads that the runtime has met. They stay valid.
pub fn all() -> impl Iterator<Item = *mut Calls> {
    let mut next = ALL.load(Ordering::Acquire);
    core::iter::from_fn(move || {
        let calls = next;
        if calls.is_null() {
            return None;
        }
        // SAFETY: lists stay valid, as does what they say was made before them.
        next = unsafe { (*calls).made_before };
        Some(calls)
    })
}

/// Makes zeroed memory an empty list, and one of all.
///
/// # Safety
/// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, that nobody else uses; both stay. One thread
/// at a time comes here.
pub unsafe fn begin(calls: *mut Calls, base: u64, overhead: &'static AtomicU64) {
    // SAFETY: the caller's promise.
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

/// Keeps others out of a list, but for its own thread's calls that need none of this; signals are blocked.
///
/// # Safety
/// The list's lock is not held by the caller.
pub unsafe fn lock(calls: *mut Calls) {
    // SAFETY: the caller's promise; the lock is an atomic.
    unsafe { (*calls).lock.lock() };
}

/// Ends what [`lock`] began.
///
/// # Safety
/// The caller holds the lock.
pub unsafe fn unlock(calls: *mut Calls) {
    // SAFETY: the caller's promise.
    unsafe { (*calls).lock.unlock() };
}

/// Locks the caller's list and drops from it what others have taken over.
///
/// # Safety
/// As for [`lock`]; the list is the caller's.
pub unsafe fn lock_own(calls: *mut Calls) {
    // SAFETY: the caller's promise.
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

/// What is in a list, the outermost first; it may come to lie elsewhere in it or be left out once it has been
/// told.
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

/// Whether a list has no activation.
///
/// # Safety
/// The list is the caller's.
#[inline(always)]
pub unsafe fn is_empty(calls: *mut Calls) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*(*calls).top).slot == BOTTOM }
}

/// Whether the thread's calls are on the stack that it began on, as far as is known, which has room for more than the stack of
/// a coroutine.
///
/// # Safety
/// The list is the caller's.
#[inline(always)]
pub unsafe fn is_at_home(calls: *const Calls) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*calls).home != 0 && !coroutines::are_known() }
}

/// The activation of `function` with its return address at `slot`; null where there is none.
///
/// # Safety
/// The list is the caller's, and locked where what is found is to stay in its place.
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

/// The innermost activation that has been lent to whoever returns through `slot`; null where there is none.
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

/// Has the activation of `function` with its return address at `slot`, and those that have been lent with that, stay
/// open: their end is not seen. The list may be in the middle of a change, by a call that the caller has interrupted.
///
/// # Safety
/// The list is the calling thread's.
#[cold]
pub unsafe fn leave_open(calls: *mut Calls, function: u32, slot: u64) {
    /// None of a function.
    const NEVER: u32 = u32::MAX;
    // SAFETY: the links between a list's places never change; the rest is the caller's promise.
    unsafe {
        let mut at = (*calls).top;
        while (*at).slot != BOTTOM {
            let is_there = (*at).slot == slot || (*at).slot == doubted(slot);
            let is_own = is_there && (*at).function == function;
            if is_own || (*at).slot == lent(slot) {
                (*at).generation = NEVER;
            }
            at = (*at).prev;
        }
    }
}

/// Lends the innermost activation, whose function leaves by a tail call, to what that calls; false, and nothing done, where
/// it must end there.
///
/// # Safety
/// The list is the caller's, and `top` not its bottom.
#[inline(always)]
pub unsafe fn lend(calls: *mut Calls, top: *mut Activation) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let lending = parameters::lending((*top).function);
        // Whoever ends it looks at the top of the list alone.
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

/// Whether a return of `function` ends an activation that has been lent: not where what could end it has changed since, and
/// where there are coroutines it may have been on another thread.
///
/// # Safety
/// The activation is valid, and has been lent.
#[inline(always)]
pub unsafe fn is_lent_to(activation: *mut Activation, function: u32) -> bool {
    // SAFETY: the caller's promise.
    let lent = unsafe { (*activation).lent };
    let number = (lent >> NUMBER_SHIFT) as u16;
    parameters::lending(function) & LENDING == number && !coroutines::are_known()
}

/// What encloses an activation: the next one below it, where it is not the innermost of all the next one
/// on the same stack, or the bottom.
///
/// # Safety
/// The list is the caller's, and locked, and has the activation.
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

/// Moves `wanted` to the top of the list, above those over it, whose order stays. The links between
/// the places of the list never change, so what they hold is moved.
///
/// # Safety
/// `wanted` is on the list, which the caller has locked.
pub unsafe fn raise(calls: *mut Calls, wanted: *mut Activation) -> *mut Activation {
    // SAFETY: the caller's promise.
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

/// Takes the innermost activation off the list.
///
/// # Safety
/// The list is the caller's; `top` is that, and not the bottom.
#[inline(always)]
pub unsafe fn pop(calls: *mut Calls, top: *mut Activation) {
    // SAFETY: the caller's promise.
    unsafe {
        uncount(calls, (*top).function);
        (*calls).top = (*top).prev;
    }
}

/// Has the list's `depths` count an activation of a function less.
///
/// # Safety
/// The list is the caller's.
#[inline(always)]
pub(super) unsafe fn uncount(calls: *mut Calls, function: u32) {
    // SAFETY: function ids are below MAX_FUNCTIONS, as many as `depths` has.
    unsafe {
        let depth = (*calls).depths.add(function as usize % abi::MAX_FUNCTIONS);
        *depth = (*depth).saturating_sub(1);
    }
}

/// Counts the activations of each function anew: a jump out of a signal handler may have left one between its being counted and its
/// coming to the list, or amid its end.
///
/// # Safety
/// The list is the caller's, and nothing changes it at its top meanwhile.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn recount(calls: *mut Calls) {
    // SAFETY: function ids are below MAX_FUNCTIONS, as many as `depths` has; the rest is the caller's promise.
    unsafe {
        let depths = core::slice::from_raw_parts_mut((*calls).depths, abi::MAX_FUNCTIONS);
        // What has not been counted takes no memory.
        depths.iter_mut().filter(|d| **d != 0).for_each(|d| *d = 0);
        for at in listed(calls).filter(|&at| (*at).slot != SEPARATOR) {
            depths[(*at).function as usize % abi::MAX_FUNCTIONS] += 1;
        }
    }
}

/// Begins an activation, which it returns: it is to be counted, and its sources are to be read.
///
/// # Safety
/// The list is the caller's and has a free activation.
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

/// Ends the innermost activation, which `top` is, as returned within `caller`. Without `ALL` it is false, and nothing has been
/// done, where that must be done on another stack.
///
/// # Safety
/// List and meter are the caller's, the meter has begun, and `top` is not the list's bottom.
#[inline(always)]
pub unsafe fn end<const ALL: bool, const TAIL: bool>(
    calls: *mut Calls,
    top: *mut Activation,
    caller: *mut Activation,
    meter: &mut Meter,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let is_current = is_current(top);
        let ended = if ALL {
            cost::end::<true>(meter, top, is_current, TAIL)
        } else if cost::is_timed_alone(top) {
            if cost::end_timed(meter, top, is_current, TAIL) {
                Ended::Counted
            } else {
                Ended::Later
            }
        } else if is_at_home(calls) {
            cost::ipath_end_at_home(meter, top, is_current, TAIL)
        } else {
            Ended::Later
        };
        if ended == Ended::Later {
            return false;
        }
        cost::pass_on(meter, top, caller, is_current && ended == Ended::Counted);
        pop(calls, top);
        true
    }
}

/// Whether the function has stayed instrumented since the activation began. If it was taken out
/// meanwhile its returns were not seen, and the activation counts as open.
///
/// # Safety
/// The activation is valid.
#[inline(always)]
pub(super) unsafe fn is_current(activation: *mut Activation) -> bool {
    // SAFETY: the caller's promise.
    unsafe { parameters::generation((*activation).function) == (*activation).generation }
}

/// Sees to it that the list has a free activation.
///
/// # Errors
/// There is no memory for one.
///
/// # Safety
/// The list is the caller's.
pub unsafe fn make_room(calls: *mut Calls) -> Result<(), Shortage> {
    // SAFETY: the caller's promise; new memory is nobody else's.
    unsafe {
        if !(*(*calls).top).next.is_null() || link_more(calls) {
            return Ok(());
        }
        let first = memory::map(TABLE_BYTES)? as *mut Activation;
        activation::link(first, ACTIVATIONS as usize, (*calls).top);
        Ok(())
    }
}

/// Links some more of the first activations after the innermost, which is the list's last; false where all
/// are linked.
///
/// # Safety
/// The list is the caller's, and has the memory for them.
unsafe fn link_more(calls: *mut Calls) -> bool {
    // SAFETY: what is not linked yet is zeroed and nobody else's; the rest is the caller's promise.
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
