//! Stacks that move. Go copies a goroutine's stack to other memory when it is too small or much too
//! large (runtime/stack.go, `copystack`).
//!
//! That function has probes at its entry and its exit. In between, while the goroutine is stopped,
//! its activations are in no list, because the old memory may belong to another goroutine before
//! the copy ends. Then they are parked under the new stack, at the same distance from its end.

use super::coroutines;
use super::list::{Calls, Moving, all, listed, lock_own, unlock};
use super::lot::{Chain, LOT};
use crate::ledger::Ledger;
use crate::walk::StackRange;

/// The memory of a goroutine's stack, stored in its first words (runtime/runtime2.go, `type g
/// struct`).
///
/// # Safety
/// Go's own code is about to read the goroutine, or has just read it.
unsafe fn stack_of(goroutine: u64) -> StackRange {
    // SAFETY: guaranteed by the caller; the words are the start and the end of the stack.
    unsafe { (goroutine as *const StackRange).read() }
}

/// True if a stack with this identity is in this memory. The identity is the end of the stack or a
/// few words below it.
fn is_of(memory: StackRange, stack: u64) -> bool {
    memory.low < stack && stack <= memory.high
}

/// The maximum distance in words from the end of a goroutine's stack down to its identity.
/// `newproc1` leaves four words (runtime/proc.go).
const WORDS_ABOVE_ROOT: u64 = 8;

/// The possible identities of a stack in this memory.
fn stacks_in(memory: StackRange) -> impl Iterator<Item = u64> {
    (0..=WORDS_ABOVE_ROOT).map(move |words| memory.high.saturating_sub(words * 8))
}

/// True if the stack of a goroutine, which is about to be copied, may have known calls. Most
/// goroutines have none.
///
/// # Safety
/// Go's own code is about to read the goroutine.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn is_known(goroutine: u64) -> bool {
    // SAFETY: guaranteed by the caller; lists stay valid.
    let memory = unsafe { stack_of(goroutine) };
    // SAFETY: as above.
    let current = |calls: *mut Calls| unsafe { (&raw const (*calls).current).read_volatile() };
    all().any(|calls| is_of(memory, current(calls)))
        || stacks_in(memory).any(|stack| LOT.may_have(stack))
        || LOT.may_have_stopped()
}

/// Takes a goroutine's activations out of all lists, because its stack is about to move. Runs on
/// the private stack, with signals blocked. `generation` is the generation of the probe that
/// reported the move.
///
/// # Safety
/// The list belongs to the caller, and Go's own code is about to copy the goroutine's stack.
pub unsafe fn begin(calls: *mut Calls, goroutine: u64, generation: u32) {
    // SAFETY: guaranteed by the caller: the goroutine is stopped while its stack is copied.
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

/// Removes the activations of a stack that no thread runs on. No thread is on it from now on.
unsafe fn gather(memory: StackRange) -> Chain {
    for known in all() {
        // SAFETY: lists stay valid; the rest is guaranteed by the caller.
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

/// True if the thread has begun to copy a stack whose calls must be moved.
///
/// # Safety
/// The list belongs to the caller.
#[inline(always)]
pub unsafe fn is_begun(calls: *mut Calls) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { (*calls).moving.goroutine != 0 }
}

/// Parks the activations of the moved goroutine under its stack's new place. They are lost if
/// `generation` is not the one passed to [`begin`]. Does nothing if no move has begun.
///
/// # Safety
/// The list and the ledger belong to the caller, which has reached the end of `copystack`.
pub unsafe fn end(calls: *mut Calls, ledger: &mut Ledger, generation: u32) {
    // SAFETY: `begin` was passed this goroutine; goroutines are never freed.
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
        // Calls known for the new memory belong to goroutines that have ended.
        coroutines::close(calls, ledger, gather(to));
        for activation in chain.activations() {
            let one = core::iter::once(activation.cast_const());
            LOT.insert((*activation).stack, LOT.copy(one, 0));
        }
        LOT.free(chain);
        // Calls on stacks without an identity are in the list of the thread that made them.
        lock_own(calls);
        for activation in listed(calls) {
            if from.holds((*activation).slot) {
                (*activation).slot = moved((*activation).slot);
            }
        }
        unlock(calls);
    }
}
