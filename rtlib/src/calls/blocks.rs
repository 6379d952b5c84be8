//! A thread's blocks of single calls ([`abi::single`]).

use core::sync::atomic::Ordering;

use abi::segment::AREA_CALLS;
use abi::single::{CALL_LISTS, CALLS_STRIDE, CallsHead, NO_BLOCK, SingleCall, block_items};

use crate::os::parameters::ipath_parameters;
use crate::os::shared::{header, item, take_several};

/// The blocks of a thread.
#[repr(C)]
pub struct Blocks {
    /// The first block of each list, by the index of its first item plus 1; 0 if there is none.
    lists: [u32; CALL_LISTS],
    /// True if there was no room for a block.
    is_full: bool,
}

/// The number of slowest calls to keep, and the number of last calls.
#[inline(always)]
pub(super) fn kept() -> (u64, u64) {
    (
        ipath_parameters.slowest.load(Ordering::Relaxed),
        ipath_parameters.traced.load(Ordering::Relaxed),
    )
}

/// A thread's block for a function, by the index of its first item.
#[derive(Clone, Copy)]
pub struct Block(u32);

impl Block {
    /// The head of the block.
    #[inline(always)]
    pub(super) fn head(self) -> &'static CallsHead {
        // SAFETY: blocks begin with a head.
        unsafe { item(AREA_CALLS, self.0.into(), CALLS_STRIDE) }
    }

    /// Call `number` of the block.
    #[inline(always)]
    pub(super) fn call(self, number: u64) -> &'static SingleCall {
        // SAFETY: blocks have this many items after their head, which are calls.
        unsafe { item(AREA_CALLS, u64::from(self.0) + 1 + number, CALLS_STRIDE) }
    }
}

impl Blocks {
    /// The block for a function. `None` if there is none yet.
    #[inline(always)]
    pub fn find(&self, function: u32) -> Option<Block> {
        let mut at = self.lists[function as usize % CALL_LISTS].checked_sub(1)?;
        loop {
            let head = Block(at).head();
            if head.function.load(Ordering::Relaxed) == function.wrapping_add(1) {
                return Some(Block(at));
            }
            at = head.next.load(Ordering::Relaxed);
            if at == NO_BLOCK {
                return None;
            }
        }
    }

    /// The block for a function, created if necessary. `None` if there is no room. Runs on the
    /// private stack.
    pub fn find_or_make(&mut self, function: u32) -> Option<Block> {
        if let Some(block) = self.find(function) {
            return Some(block);
        }
        let (slowest, traced) = kept();
        let items = block_items(slowest, traced);
        let taken = take_several(AREA_CALLS, &header().calls_used, CALLS_STRIDE, items);
        let Ok(index) = taken else {
            self.is_full = true;
            return None;
        };
        let list = &mut self.lists[function as usize % CALL_LISTS];
        let block = Block(index);
        let head = block.head();
        head.next
            .store(list.checked_sub(1).unwrap_or(NO_BLOCK), Ordering::Relaxed);
        if slowest == 0 {
            head.bar.store(u64::MAX, Ordering::Relaxed);
        }
        head.function
            .store(function.wrapping_add(1), Ordering::Release);
        *list = index + 1;
        Some(block)
    }

    /// True if there was no room for a block. Then no later call asks for one again.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}
