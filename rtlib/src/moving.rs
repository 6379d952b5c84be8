//! Stacks that move: Go copies a goroutine's to other memory when it has grown out of its own, or needs
//! far less (runtime/stack.go, `copystack`).
//!
//! That function carries a probe at its entry and its exit. Between the two, while the goroutine stands
//! still, its activations are in no memory at all but where no address is; then in the new one, as far
//! from its end as they were. Another thread may have them than the one that copies.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::stacks::{self, SEPARATOR};
use crate::thread::{self, Thread};

/// Bytes below the slot where the trampoline has stored rax, in which Go's functions have their first
/// argument since 1.17 (its ABIInternal).
const FIRST_ARGUMENT: u64 = 8;

/// A goroutine's stack on its way, kept by the thread that copies it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Moving {
    /// The goroutine; 0 while there is none whose calls must be moved.
    goroutine: u64,
    /// What is the end of its stack meanwhile: no address.
    end: u64,
}

/// A stack, by the first words of its goroutine (runtime/runtime2.go, `type g struct`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Stack {
    low: u64,
    high: u64,
}

impl Stack {
    fn holds(&self, slot: u64) -> bool {
        self.low <= slot && slot < self.high
    }

    /// Whether a stack known by this address, as [`crate::walk::Walk::stack`] has it, lies there.
    fn is_known_by(&self, address: u64) -> bool {
        self.low < address && address <= self.high
    }
}

/// No stack is larger.
const MOST: u64 = 1 << 40;
/// Stacks on their way are above this, where the processor has no addresses for programs.
const NOWHERE: u64 = 1 << 63;

/// The next place for a stack on its way, each used once as a rule.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Takes a goroutine's activations out of its stack's memory, which is about to be another's. Runs on the
/// private stack, with signals blocked.
///
/// # Safety
/// The thread is the caller's, `slot` the address of the return address of a call of `copystack`.
pub(crate) unsafe fn begin(thread: *mut Thread, slot: u64) {
    // SAFETY: the stub's trampoline has stored the register there; Go's own code is about to read the
    // goroutine that it points to, which stands still while its stack is copied.
    unsafe {
        let goroutine = ((slot - FIRST_ARGUMENT) as *const u64).read();
        let stack = (goroutine as *const Stack).read();
        let turn = NEXT.fetch_add(1, Ordering::Relaxed) % (NOWHERE / MOST - 1);
        let end = NOWHERE + (turn + 1) * MOST;
        let has_calls = rebase(thread, stack, end, stack);
        let goroutine = if has_calls { goroutine } else { 0 };
        (*thread).moving = Moving { goroutine, end };
    }
}

/// Puts them where the stack is now.
///
/// # Safety
/// The thread is the caller's, which has come to the end of `copystack`.
pub(crate) unsafe fn end(thread: *mut Thread) {
    // SAFETY: the goroutine is the one that `begin` was told; goroutines are never freed.
    unsafe {
        let Moving { goroutine, end } = (*thread).moving;
        if goroutine == 0 {
            return;
        }
        (*thread).moving.goroutine = 0;
        let nowhere = Stack {
            low: end - MOST,
            high: end,
        };
        let stack = (goroutine as *const Stack).read();
        rebase(thread, nowhere, stack.high, stack);
    }
}

/// Moves the activations on stack `from`, whosever they are, to where it ends at `to`; whether there are any.
/// What else threads know of the `memory` of a stack, they forget: it is of goroutines that have ended or
/// moved.
///
/// # Safety
/// The thread is the caller's; nobody runs on the stack.
unsafe fn rebase(thread: *mut Thread, from: Stack, to: u64, memory: Stack) -> bool {
    let moved = |at: u64| at.wrapping_sub(from.high).wrapping_add(to);
    let mut has_calls = false;
    for owner in thread::all() {
        // SAFETY: listed threads stay valid. With its list locked a thread changes nothing but its top, for
        // calls on the stack that it runs on, which is not this one; what it may read of this one's meanwhile
        // is a place on no stack of its own either way.
        unsafe {
            if owner == thread {
                stacks::lock_own(owner);
            } else {
                stacks::lock(owner);
            }
            if memory.is_known_by((*owner).current) {
                (*owner).current = 0;
            }
            let mut at = (&raw const (*owner).top).read_volatile();
            while (*at).slot != u64::MAX {
                if from.holds((*at).slot) {
                    (*at).slot = moved((*at).slot);
                    if from.is_known_by((*at).stack) {
                        (*at).stack = moved((*at).stack);
                        if to < NOWHERE {
                            stacks::own((*at).stack, owner);
                        }
                    }
                    has_calls = true;
                } else if (*at).slot == SEPARATOR && memory.is_known_by((*at).stack) {
                    (*at).stack = 0;
                }
                at = (*at).prev;
            }
            stacks::unlock(owner);
        }
    }
    has_calls
}
