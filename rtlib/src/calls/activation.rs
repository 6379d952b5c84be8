//! Activations: calls of probed functions that have not ended.

use core::ptr;

use abi::probe::LENDING;
use abi::schema::source;
use abi::segment::RecordHead;

use crate::sources::Said;

/// One call of a probed function. Activations of a thread form a doubly linked list whose links
/// never change: taking the next one is following `next`.
#[repr(C)]
pub struct Activation {
    /// Address of the return address; `u64::MAX` at the bottom of the list. One that has been lent ([`lent`]) is odd.
    pub slot: u64,
    /// Which stack: the canonical frame address of its root frame.
    pub stack: u64,
    /// Time-stamp counter at entry.
    pub start: u64,
    /// Ticks spent in probed functions called from this one.
    pub nested: u64,
    /// By how much the time-stamp counter was ahead of the thread's CPU time at the entry, where that is measured;
    /// [`UNKNOWN`] where it is not known, as of a call that has come to another thread, or to another stack and back.
    pub ahead: u64,
    /// The part of `nested` in which the thread was on a processor, of functions of which that is measured.
    pub nested_cpu: u64,
    /// The record of this thread and path.
    pub record: *const RecordHead,
    /// Function id.
    pub function: u32,
    /// The function's generation at entry.
    pub generation: u32,
    /// 1 where no activation of the same function encloses this one.
    pub outermost: u32,
    /// Where it has been lent: its function's number by then ([`LENDING`]) in the upper half, and how many that have been lent with
    /// the same slot end here, this one included.
    pub lent: u32,
    /// The enclosing activation.
    pub prev: *mut Activation,
    /// The one to take next; null where more must be made first.
    pub next: *mut Activation,
    /// Where what it needs of other sources than those is kept; null as long as nothing has been. It stays with this place in
    /// memory, but for [`swap`].
    pub more: *mut More,
}

/// What sources said at an entry.
#[repr(C)]
pub struct More {
    /// Which of them have been read: bit n for source n; neither the clock nor CPU time, which the activation has. One of a
    /// call that has come to another thread, or to another stack and back, has none: what has passed meanwhile is not the
    /// call's.
    pub known: u64,
    /// Of each source what it was, and by how much it has grown in probed functions called from this one.
    pub source: [Growing; source::ALL],
    /// Arguments, where it is not known before the end whether they count.
    pub arguments: [i64; ARGUMENTS],
}

/// See [`More`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Growing {
    /// What the source said at the entry.
    pub start: Said,
    /// By how much it has grown in probed functions called from this one.
    pub nested: u64,
}

/// See [`Activation::ahead`].
pub const UNKNOWN: u64 = u64::MAX;

/// How many arguments a call can have.
pub const ARGUMENTS: usize = abi::value::RETURN as usize;

/// As many calls, at most, wait for one callee that each has come to by a tail call from the one before: where tail calls
/// go round in a circle, calls without end would.
pub const MOST_LENT: u32 = 16;
/// Where the upper half of [`Activation::lent`] begins.
pub const NUMBER_SHIFT: u32 = u16::BITS;
const _: () = assert!(MOST_LENT < 1 << NUMBER_SHIFT && LENDING as u32 <= u16::MAX as u32);

/// The slot of an activation that has been lent, of a function that has left by a tail call: who returns through the slot
/// ends it. It is above that of the callee's activation, and below that of their caller.
pub const fn lent(slot: u64) -> u64 {
    slot | 1
}

/// The slot of an activation in doubt ([`super::doubt`]). It is below the slot of the return
/// address, so the next call from there finds the activation left behind.
pub const fn doubted(slot: u64) -> u64 {
    slot - DOUBT
}

/// Less than a word, and more than [`lent`] adds.
const DOUBT: u64 = 4;

/// Where the return address of an activation with this slot is.
pub const fn return_address(slot: u64) -> u64 {
    slot.saturating_add(DOUBT) & !7
}

/// Links the zeroed memory at `first` into `count` activations that follow `prev`.
///
/// # Safety
/// The memory is `count` activations large, writable and nobody else's; `prev` is null or valid.
pub unsafe fn link(first: *mut Activation, count: usize, prev: *mut Activation) {
    // SAFETY: indexes stay below `count`; `prev` is valid where it is not null.
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

/// Makes the activation at `place` the same as `activation` but for its links, and for what other sources than the clock
/// said: that is not known of a call that comes to another place so.
///
/// # Safety
/// Both are valid.
pub unsafe fn copy(activation: *const Activation, place: *mut Activation) {
    // SAFETY: the caller's promise; they may be one.
    unsafe {
        let (prev, next, more) = ((*place).prev, (*place).next, (*place).more);
        ptr::copy(activation, place, 1);
        ((*place).prev, (*place).next, (*place).more) = (prev, next, more);
        (*place).ahead = UNKNOWN;
        if !more.is_null() {
            (*more).known = 0;
        }
    }
}

/// Exchanges two activations, but for their links.
///
/// # Safety
/// Both are valid, and not the same.
pub unsafe fn swap(a: *mut Activation, b: *mut Activation) {
    // SAFETY: the caller's promise.
    unsafe {
        let (a_links, b_links) = (((*a).prev, (*a).next), ((*b).prev, (*b).next));
        ptr::swap(a, b);
        ((*a).prev, (*a).next) = a_links;
        ((*b).prev, (*b).next) = b_links;
    }
}
