//! Frames and the stacks they are on.

use unwind::{Regs, Saved};

/// The memory range of a stack.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StackRange {
    /// First address of the stack's memory.
    pub low: u64,
    /// First address after the stack's memory.
    pub high: u64,
}

impl StackRange {
    /// True if the word at `slot` is in the stack's memory.
    #[inline(always)]
    pub fn holds(&self, slot: u64) -> bool {
        self.low <= slot && slot < self.high
    }
}

/// A suspended frame.
#[derive(Clone, Copy)]
pub struct Frame {
    /// The address at which the frame continues.
    pub pc: u64,
    /// The stack pointer and callee-saved registers with which the frame continues.
    pub registers: Regs,
}

/// The stack that a frame is on.
#[derive(Clone, Copy)]
pub struct Stack {
    /// The CFA of the root frame. If the walk did not reach the root: `stopped_at` for the place of
    /// its stop, or on a thread's own stack the stack's end.
    pub id: u64,
    /// True if `id` distinguishes this stack from all others in use.
    pub is_told: bool,
    /// The root's return address; 0 if the walk did not reach the root.
    pub root: u64,
}

impl Stack {
    /// A stack in memory that ends at `high` and may contain other stacks as well.
    pub(super) fn in_memory(high: u64) -> Self {
        Self {
            id: high,
            is_told: false,
            root: 0,
        }
    }
}

/// The identity of a stack without a known root, from the stack pointer of the frame at which its
/// walks stop. It is odd, so it never equals the CFA of a root frame. Two stacks in use never share
/// it, because their frames are disjoint.
#[inline(always)]
pub const fn stopped_at(sp: u64) -> u64 {
    sp | 1
}

/// True if `stack`, the identity of a stack, was made by `stopped_at`.
pub const fn is_stopped(stack: u64) -> bool {
    stack & 1 != 0
}

impl Frame {
    /// The frame that has made the call whose return address is at `slot`.
    ///
    /// # Safety
    /// `slot` is on the calling thread's stack, and the registers are those at the call.
    pub unsafe fn of_caller(slot: u64, saved: &Saved) -> Self {
        // SAFETY: guaranteed by the caller.
        let pc = unsafe { (slot as *const u64).read() };
        Self {
            pc,
            registers: Regs::new(slot + 8, saved),
        }
    }
}
