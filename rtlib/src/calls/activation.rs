//! Activations: calls of probed functions that have not ended.

use core::ptr;

use abi::probe::LENDING;
use abi::schema::source;
use abi::segment::RecordHead;
use abi::single::CALLEES;

use crate::os::parameters;
use crate::sources::Said;

/// A call of a probed function. The activations of a thread form a doubly linked list. The links
/// never change: the next activation to use is always `next`.
#[repr(C)]
pub struct Activation {
    /// Address of the return address; `u64::MAX` at the bottom of the list. Lent activations and
    /// those in doubt have other slots ([`lent`], [`doubted`]).
    pub slot: u64,
    /// The identity of the stack: the canonical frame address of its root frame.
    pub stack: u64,
    /// The time of the entry by the thread clock, in ticks. In a parked copy, the time-stamp
    /// counter at the entry.
    pub start: u64,
    /// Ticks spent in probed functions called from this one.
    pub nested: u64,
    /// The time-stamp counter minus the thread's CPU time at the entry, if CPU time is measured.
    /// [`UNKNOWN`] after the call has moved to another thread, or to another stack and back.
    pub ahead: u64,
    /// The CPU time of probed functions called from this one, in ticks, for functions whose CPU
    /// time is measured.
    pub nested_cpu: u64,
    /// The record of this thread and path.
    pub record: *const RecordHead,
    /// The id of the probed function.
    pub function: u32,
    /// The function's generation at entry.
    pub generation: u32,
    /// 1 if no activation of the same function encloses this one.
    pub outermost: u32,
    /// For a lent activation: in the upper half, the number of its function's group when it was
    /// lent ([`LENDING`]). In the lower half, the number of lent activations with the same slot
    /// that end with this one, including it.
    pub lent: u32,
    /// The enclosing activation.
    pub prev: *mut Activation,
    /// The next activation to use; null if memory must be mapped first.
    pub next: *mut Activation,
    /// The values of sources other than the clock and CPU time; null until first needed. It belongs
    /// to this place in memory, and only [`swap`] moves it.
    pub more: *mut More,
    /// The time-stamp counter at the entry, if it is needed at the end.
    pub entered: u64,
    /// The arguments, if they are needed at the end.
    pub arguments: [i64; ARGUMENTS],
}

/// The values of sources at an entry.
#[repr(C)]
pub struct More {
    /// The sources that have been read: bit n for source n. The clock and CPU time are in the
    /// activation instead. 0 after the call has moved to another thread, or to another stack and
    /// back: growth in the meantime does not belong to the call.
    pub known: u64,
    /// The value of each source at the entry, and its growth in nested calls.
    pub source: [Growing; source::ALL],
    /// The time in probed functions called from this one, if single calls are kept.
    pub callees: Callees,
}

/// The time in some functions that were called from another one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Callees {
    /// The ids of the functions plus 1, up to the first 0, with [`abi::single::CALLEE_IS_PARTIAL`].
    /// Those after it have no meaning.
    pub function: [u32; CALLEES],
    _padding: u32,
    /// Ticks in the calls of each.
    pub ticks: [u64; CALLEES],
}

/// A source in [`More`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Growing {
    /// The value of the source at the entry.
    pub start: Said,
    /// The growth of the source in probed functions called from this one.
    pub nested: u64,
}

/// The value of [`Activation::ahead`] if the CPU time at the entry is not known.
pub const UNKNOWN: u64 = u64::MAX;

/// The maximum number of arguments stored per call.
pub const ARGUMENTS: usize = abi::value::RETURN as usize;

/// The maximum number of lent calls that wait for one callee, each entered by a tail call from the
/// one before. Without a limit, a cycle of tail calls would add calls without end.
pub const MOST_LENT: u32 = 16;
/// The bit at which the upper half of [`Activation::lent`] begins.
pub const NUMBER_SHIFT: u32 = u16::BITS;
const _: () = assert!(MOST_LENT < 1 << NUMBER_SHIFT && LENDING as u32 <= u16::MAX as u32);

/// Slot of an entry that separates the calls of the current stack from entries below it that stay
/// in the list. It is above every address. Calls of the separator's stack find it as their
/// enclosing activation.
pub const SEPARATOR: u64 = u64::MAX - 7;
/// Slot of an activation that another thread has taken over.
pub const TAKEN: u64 = 0;
/// Slot of the bottom of the list, which encloses every call.
pub const BOTTOM: u64 = u64::MAX;

/// The slot of a lent activation, whose function has left by a tail call. The return through `slot`
/// ends it. The slot is above the one of the callee's activation and below the one of their
/// caller's.
pub const fn lent(slot: u64) -> u64 {
    slot | 1
}

/// The slot of an activation in doubt ([`super::doubt`]). It is below the slot of the return
/// address, so the next call from there finds the activation left behind.
pub const fn doubted(slot: u64) -> u64 {
    slot - DOUBT
}

/// Bytes from the slot of a return address down to the doubted slot. It is less than a word, and
/// more than [`lent`] adds.
const DOUBT: u64 = 4;

/// The address of the return address of the activation with `slot`, which may be lent or doubted.
pub const fn return_address(slot: u64) -> u64 {
    slot.saturating_add(DOUBT) & !7
}

/// The key under which calls directly under this innermost one are remembered on paths of measured
/// functions only. The stub computes the same number.
///
/// # Safety
/// The activation is valid.
#[inline(always)]
pub unsafe fn key(activation: *const Activation) -> u64 {
    // SAFETY: guaranteed by the caller.
    let (slot, record) = unsafe { ((*activation).slot, (*activation).record) };
    slot & 7 | 2 | record as u64
}

/// True if the slot is that of a lent activation, whose function is not on the stack any more.
pub const fn is_lent(slot: u64) -> bool {
    slot & 1 != 0
}

/// True if the slot is that of an activation in doubt.
pub const fn is_doubted(slot: u64) -> bool {
    slot & 7 == doubted(0) & 7
}

/// Links the zeroed memory at `first` into `count` activations that follow `prev`.
///
/// # Safety
/// The memory holds `count` activations, is writable, and has no other user. `prev` is null or
/// valid.
pub unsafe fn link(first: *mut Activation, count: usize, prev: *mut Activation) {
    // SAFETY: indexes stay below `count`, and `prev` is valid unless it is null.
    unsafe {
        for index in 0..count {
            let at = first.add(index);
            (*at).prev = if index == 0 { prev } else { at.sub(1) };
            (*at).next = if index + 1 == count {
                ptr::null_mut()
            } else {
                at.add(1)
            };
        }
        if !prev.is_null() {
            (*prev).next = first;
        }
    }
}

/// True if the function has stayed instrumented since the activation began. If it was removed
/// meanwhile, its returns were not seen, and the activation counts as open.
///
/// # Safety
/// The activation is valid.
#[inline(always)]
pub unsafe fn is_current(activation: *mut Activation) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { parameters::generation((*activation).function) == (*activation).generation }
}

/// Copies an activation to `place`, except the links and [`More`]. The values of those sources are
/// unknown for a call that moves like this.
///
/// # Safety
/// Both are valid.
pub unsafe fn copy(activation: *const Activation, place: *mut Activation) {
    // SAFETY: guaranteed by the caller; the two may be the same.
    unsafe {
        let (prev, next, more) = ((*place).prev, (*place).next, (*place).more);
        ptr::copy(activation, place, 1);
        ((*place).prev, (*place).next, (*place).more) = (prev, next, more);
        (*place).ahead = UNKNOWN;
        if !more.is_null() {
            (*more).known = 0;
            (*more).callees.function[0] = 0;
        }
    }
}

/// Exchanges two activations except for their links.
///
/// # Safety
/// Both are valid, and not the same.
pub unsafe fn swap(a: *mut Activation, b: *mut Activation) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (a_links, b_links) = (((*a).prev, (*a).next), ((*b).prev, (*b).next));
        ptr::swap(a, b);
        ((*a).prev, (*a).next) = a_links;
        ((*b).prev, (*b).next) = b_links;
    }
}
