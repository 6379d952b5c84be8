//! Stacks that move: Go copies a goroutine's to other memory when it has grown out of its own, or needs
//! far less (runtime/stack.go, `copystack`).
//!
//! That function carries a probe at its entry and its exit. Between the two, while the goroutine stands
//! still, its activations are in no list: the old memory may be another goroutine's before all is copied.
//! Then they are parked as of the new one, as far from its end as they were.

use crate::lot::Chain;
use crate::registry;
use crate::stacks::{self, LOT};
use crate::thread::{StackRange, Thread};

/// Bytes below the slot where the trampoline has stored rax, in which Go's functions have their first
/// argument since 1.17 (its ABIInternal).
const FIRST_ARGUMENT: u64 = 8;

/// A goroutine's stack on its way, kept by the thread that copies it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Moving {
    /// The goroutine; 0 while there is none whose calls must be moved.
    goroutine: u64,
    /// The generation of the probe that was told: the exits of another one are not this one's.
    generation: u32,
    /// Where it was.
    from: StackRange,
    /// What it was known by, as [`crate::walk::Walk::stack`] has it.
    stack: u64,
    /// Its activations.
    chain: Chain,
}

impl Moving {
    /// Ends what has been begun: the thread is gone.
    pub(crate) fn forget(&mut self) {
        self.goroutine = 0;
    }
}

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

/// The goroutine that a call of `copystack` is about.
///
/// # Safety
/// `slot` is the address of the call's return address, and Go's own code is about to read the goroutine.
unsafe fn goroutine_at(slot: u64) -> u64 {
    // SAFETY: the stub's trampoline has stored the register there.
    unsafe { ((slot - FIRST_ARGUMENT) as *const u64).read() }
}

/// Whether anything may be known of the stack that a call of `copystack` is about: most have no calls that are
/// measured.
///
/// # Safety
/// As for [`begin`], but for the stack and the signals.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(crate) unsafe fn is_known(slot: u64) -> bool {
    // SAFETY: Go's own code is about to read the goroutine; listed threads stay valid.
    let memory = unsafe { stack_of(goroutine_at(slot)) };
    // SAFETY: as above.
    let current = |thread: *mut Thread| unsafe { (&raw const (*thread).current).read_volatile() };
    registry::all().any(|thread| is_of(memory, current(thread)))
        || stacks_in(memory).any(|stack| LOT.may_have(stack))
}

/// Takes a goroutine's activations out of all lists: its stack's memory is about to be another's. Runs on the
/// private stack, with signals blocked.
///
/// # Safety
/// The thread is the caller's, `slot` the address of the return address of a call of `copystack`.
pub(crate) unsafe fn begin(thread: *mut Thread, slot: u64, generation: u32) {
    // SAFETY: Go's own code is about to read the goroutine, which stands still while its stack is copied.
    unsafe {
        let goroutine = goroutine_at(slot);
        let from = stack_of(goroutine);
        let (stack, chain) = gather(from);
        (*thread).moving = Moving {
            goroutine,
            generation,
            from,
            stack,
            chain,
        };
    }
}

/// What is known of a stack that nobody runs on; from now on no thread is on it.
unsafe fn gather(memory: StackRange) -> (u64, Chain) {
    for known in registry::all() {
        // SAFETY: listed threads stay valid; the caller's promise.
        unsafe {
            if is_of(memory, (&raw const (*known).current).read_volatile()) {
                stacks::park(known, |stack| is_of(memory, stack));
            }
        }
    }
    let found = stacks_in(memory).find_map(|stack| {
        let chain = LOT.remove(stack);
        (!chain.is_empty()).then_some((stack, chain))
    });
    found.unwrap_or((0, Chain::EMPTY))
}

/// Whether a thread has begun to copy a stack whose calls must be moved.
///
/// # Safety
/// The thread is the caller's.
#[inline(always)]
pub(crate) unsafe fn is_begun(thread: *mut Thread) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*thread).moving.goroutine != 0 }
}

/// Parks them as of where the stack is now.
///
/// # Safety
/// The thread is the caller's, which has come to the end of `copystack`.
pub(crate) unsafe fn end(thread: *mut Thread, generation: u32) {
    // SAFETY: the goroutine is the one that `begin` was told; goroutines are never freed.
    unsafe {
        let Moving {
            goroutine,
            generation: begun,
            from,
            stack,
            chain,
        } = (*thread).moving;
        (*thread).moving.goroutine = 0;
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
        let (_, ended) = gather(to);
        stacks::close(thread, ended);
        LOT.insert(moved(stack), chain);
        // Calls on paths to no known root are in the list of the thread that made them.
        stacks::lock_own(thread);
        for activation in stacks::listed(thread) {
            if from.holds((*activation).slot) {
                (*activation).slot = moved((*activation).slot);
            }
        }
        stacks::unlock(thread);
    }
}
