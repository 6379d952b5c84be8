//! Stacks that move: Go copies a goroutine's to other memory when it has grown out of its own, or needs
//! far less (runtime/stack.go, `copystack`).
//!
//! That function carries a probe at its entry and its exit. Between the two, while the goroutine stands
//! still, its activations are in no list: the old memory may be another goroutine's before all is copied.
//! Then they are parked as of the new one, as far from its end as they were.

use super::coroutines;
use super::list::{Calls, Moving, all, listed, lock_own, unlock};
use super::lot::{Chain, LOT};
use crate::ledger::Ledger;
use crate::walk::StackRange;

/// The memory of a goroutine's stack: its first words (runtime/runtime2.go, `type g struct`).
///
/// # Safety
/// It is a goroutine that Go's own code is about to read, or has just read.
unsafe fn stack_of(goroutine: u64) -> StackRange {
    // SAFETY: the caller's promise; the words are where the stack begins and ends.
    unsafe { (goroutine as *const StackRange).read() }
}

/// Whether a stack that is known by this address, at its end or a few words below, lies there.
fn is_of(memory: StackRange, stack: u64) -> bool {
    memory.low < stack && stack <= memory.high
}

/// Words between the end of a goroutine's stack and what it is known by, at most: `newproc1` leaves four
/// (runtime/proc.go).
const WORDS_ABOVE_ROOT: u64 = 8;

/// What a stack in this memory may be known by.
fn stacks_in(memory: StackRange) -> impl Iterator<Item = u64> {
    (0..=WORDS_ABOVE_ROOT).map(move |words| memory.high.saturating_sub(words * 8))
}

/// Whether anything may be known of a goroutine's stack that is about to be copied: most have no calls that are
/// measured.
///
/// # Safety
/// Go's own code is about to read the goroutine.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn is_known(goroutine: u64) -> bool {
    // SAFETY: the caller's promise; lists stay valid.
    let memory = unsafe { stack_of(goroutine) };
    // SAFETY: as above.
    let current = |calls: *mut Calls| unsafe { (&raw const (*calls).current).read_volatile() };
    all().any(|calls| is_of(memory, current(calls)))
        || stacks_in(memory).any(|stack| LOT.may_have(stack))
        || LOT.may_have_stopped()
}

/// Takes a goroutine's activations out of all lists: its stack's memory is about to be another's. Runs on the
/// private stack, with signals blocked. The probe that tells it is of this generation.
///
/// # Safety
/// The list is the caller's, and Go's own code about to copy the goroutine's stack.
pub unsafe fn begin(calls: *mut Calls, goroutine: u64, generation: u32) {
    // SAFETY: the caller's promise: the goroutine stands still while its stack is copied.
    unsafe {
        let from = stack_of(goroutine);
        let chain = gather(from);
        (*calls).moving = Moving {
            goroutine,
            generation,
            from,
            chain,
        };
    }
}

/// What is known of a stack that nobody runs on; from now on no thread is on it.
unsafe fn gather(memory: StackRange) -> Chain {
    for known in all() {
        // SAFETY: lists stay valid; the caller's promise.
        unsafe {
            if is_of(memory, (&raw const (*known).current).read_volatile()) {
                coroutines::park(known, |stack| is_of(memory, stack));
            }
        }
    }
    let mut found = LOT.remove_stopped(memory);
    for stack in stacks_in(memory) {
        found = found.join(LOT.remove(stack));
    }
    found
}

/// Whether a thread has begun to copy a stack whose calls must be moved.
///
/// # Safety
/// The list is the caller's.
#[inline(always)]
pub unsafe fn is_begun(calls: *mut Calls) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*calls).moving.goroutine != 0 }
}

/// Parks them as of where the stack is now.
///
/// # Safety
/// List and ledger are the caller's, who has come to the end of `copystack`.
pub unsafe fn end(calls: *mut Calls, ledger: &mut Ledger, generation: u32) {
    // SAFETY: the goroutine is the one that `begin` was told; goroutines are never freed.
    unsafe {
        let Moving {
            goroutine,
            generation: begun,
            from,
            chain,
        } = (*calls).moving;
        (*calls).moving.goroutine = 0;
        if goroutine == 0 || begun != generation {
            return;
        }
        let to = stack_of(goroutine);
        let moved = |at: u64| at.wrapping_sub(from.high).wrapping_add(to.high);
        for activation in chain.activations() {
            (*activation).slot = moved((*activation).slot);
            (*activation).stack = moved((*activation).stack);
        }
        // What is known of the new memory is of goroutines that have ended.
        coroutines::close(calls, ledger, gather(to));
        for activation in chain.activations() {
            let one = core::iter::once(activation.cast_const());
            LOT.insert((*activation).stack, LOT.copy(one, 0));
        }
        LOT.free(chain);
        // Calls on unidentified stacks are in the list of the thread that made them.
        lock_own(calls);
        for activation in listed(calls) {
            if from.holds((*activation).slot) {
                (*activation).slot = moved((*activation).slot);
            }
        }
        unlock(calls);
    }
}
