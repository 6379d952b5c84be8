//! Calls on stacks that no thread runs on, such as those of suspended coroutines.
//!
//! The activations of a parked stack are copied to a chain, the outermost first. Its head is in a
//! hash table under the identity of the stack.

use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::activation::Activation;
use super::left::is_slice;
use crate::os::lock::Lock;
use crate::os::{hash, memory};
use crate::walk::{StackRange, is_stopped};

const BITS: u32 = 14;
/// Bytes mapped at a time for activations.
const CHUNK: u64 = 1 << 16;

/// The parked calls of all stacks.
pub static LOT: Lot = Lot::new();

/// The parked stacks. All changes are made under the lock.
pub struct Lot {
    lock: Lock,
    /// Heads with the same hash, linked by `prev`.
    buckets: [AtomicPtr<Activation>; 1 << BITS],
    /// Unused activations, linked by `next`.
    free: AtomicPtr<Activation>,
    /// The number of parked stacks that are identified by the stop of their walks.
    stopped: AtomicU64,
    /// The number of parked stacks that share a memory range with others.
    slices: AtomicU64,
}

/// The activations of a parked stack, owned by the holder.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Chain(*mut Activation);

impl Chain {
    /// The empty chain.
    pub const EMPTY: Self = Self(ptr::null_mut());

    /// True if the chain has no activations.
    pub fn is_empty(self) -> bool {
        self.0.is_null()
    }

    /// The activations, the outermost first.
    pub fn activations(self) -> impl Iterator<Item = *mut Activation> {
        let mut next = self.0;
        core::iter::from_fn(move || {
            let at = next;
            if at.is_null() {
                return None;
            }
            // SAFETY: the links of a chain lead to activations in use, or nowhere.
            next = unsafe { (*at).next };
            Some(at)
        })
    }

    /// Appends another chain.
    pub fn join(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        // SAFETY: the chain belongs to the holder.
        unsafe { (*self.last()).next = other.0 };
        self
    }

    /// The innermost activation; null if there is none.
    fn last(self) -> *mut Activation {
        self.activations().last().unwrap_or(ptr::null_mut())
    }
}

impl Lot {
    /// An empty lot.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            buckets: [const { AtomicPtr::new(ptr::null_mut()) }; 1 << BITS],
            free: AtomicPtr::new(ptr::null_mut()),
            stopped: AtomicU64::new(0),
            slices: AtomicU64::new(0),
        }
    }

    /// Copies activations, the outermost first, to a chain. If memory runs out, the rest is
    /// dropped. `behind` is the lag of their thread's clock, in ticks; the copies use the
    /// time-stamp counter.
    pub fn copy(&self, activations: impl Iterator<Item = *const Activation>, behind: u64) -> Chain {
        let mut activations = activations.peekable();
        if activations.peek().is_none() {
            return Chain::EMPTY;
        }
        self.lock.lock();
        let (mut first, mut last) = (ptr::null_mut(), ptr::null_mut::<Activation>());
        for activation in activations {
            let Some(new) = self.take() else {
                break;
            };
            // SAFETY: the caller's activations are valid; the new one and the last are ours.
            unsafe {
                ptr::copy_nonoverlapping(activation, new, 1);
                (*new).next = ptr::null_mut();
                (*new).more = ptr::null_mut();
                (*new).start = (*new).start.wrapping_add(behind);
                if last.is_null() {
                    first = new;
                } else {
                    (*last).next = new;
                }
            }
            last = new;
        }
        self.lock.unlock();
        Chain(first)
    }

    /// Frees the memory of a chain.
    pub fn free(&self, chain: Chain) {
        if chain.is_empty() {
            return;
        }
        self.lock.lock();
        // SAFETY: the chain belongs to the caller and ends at its last activation.
        unsafe { self.give_back(chain.0, chain.last()) };
        self.lock.unlock();
    }

    /// Frees linked activations. The lock is held.
    unsafe fn give_back(&self, first: *mut Activation, last: *mut Activation) {
        // SAFETY: guaranteed by the caller: the activations have no user.
        unsafe { (*last).next = self.free.load(Ordering::Relaxed) };
        self.free.store(first, Ordering::Relaxed);
    }

    /// Parks a chain under a stack, after an existing one. It is lost if there is no memory.
    pub fn insert(&self, stack: u64, chain: Chain) {
        if chain.is_empty() {
            return;
        }
        self.lock.lock();
        let bucket = self.bucket(stack);
        let mut head = bucket.load(Ordering::Relaxed);
        // SAFETY: heads in the table are valid, and so are their links.
        unsafe {
            while !head.is_null() && (*head).stack != stack {
                head = (*head).prev;
            }
            if !head.is_null() {
                (*Chain((*head).next).last()).next = chain.0;
            } else if let Some(new) = self.take() {
                (*new).stack = stack;
                self.count(stack, 1);
                (*new).next = chain.0;
                (*new).prev = bucket.load(Ordering::Relaxed);
                bucket.store(new, Ordering::Relaxed);
            } else {
                self.give_back(chain.0, chain.last());
            }
        }
        self.lock.unlock();
    }

    /// False if the stack is certainly not parked. True if it may be.
    pub fn may_have(&self, stack: u64) -> bool {
        !self.bucket(stack).load(Ordering::Relaxed).is_null()
    }

    /// True if a stack may be parked that is identified by the stop of its walks
    /// ([`crate::walk::is_stopped`]).
    pub fn may_have_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) != 0
    }

    /// True if a stack is parked that shares a memory range with others.
    #[inline(always)]
    pub fn may_have_slices(&self) -> bool {
        self.slices.load(Ordering::Relaxed) != 0
    }

    /// Removes a stack and returns its activations; empty if it is not parked.
    pub fn remove(&self, stack: u64) -> Chain {
        // Chains meant for this caller were inserted before it came here, so a check without the
        // lock suffices.
        if !self.may_have(stack) {
            return Chain::EMPTY;
        }
        self.lock.lock();
        let chain = self.take_out(self.bucket(stack), |known| known == stack);
        self.lock.unlock();
        chain
    }

    /// Removes the activations of stacks in this memory that are identified by the stop of their
    /// walks.
    pub fn remove_stopped(&self, memory: StackRange) -> Chain {
        let mut chain = Chain::EMPTY;
        if !self.may_have_stopped() {
            return chain;
        }
        self.lock.lock();
        for bucket in &self.buckets {
            loop {
                let found = self.take_out(bucket, |stack| is_stopped(stack) && memory.holds(stack));
                if found.is_empty() {
                    break;
                }
                chain = chain.join(found);
            }
        }
        self.lock.unlock();
        chain
    }

    /// Adds `more` to the count for stacks of this kind, if they are counted.
    fn count(&self, stack: u64, more: u64) {
        let counts = [
            (&self.stopped, is_stopped(stack)),
            (&self.slices, is_slice(stack)),
        ];
        for (count, _) in counts.into_iter().filter(|(_, is_it)| *is_it) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Removes the first stack for which `is_it` returns true from a bucket, and returns its
    /// activations; empty if there is none. The lock is held.
    fn take_out(&self, bucket: &AtomicPtr<Activation>, is_it: impl Fn(u64) -> bool) -> Chain {
        let mut before: *mut Activation = ptr::null_mut();
        let mut head = bucket.load(Ordering::Relaxed);
        // SAFETY: as for `insert`.
        unsafe {
            while !head.is_null() && !is_it((*head).stack) {
                before = head;
                head = (*head).prev;
            }
            if head.is_null() {
                return Chain::EMPTY;
            }
            if before.is_null() {
                bucket.store((*head).prev, Ordering::Relaxed);
            } else {
                (*before).prev = (*head).prev;
            }
            self.count((*head).stack, u64::MAX);
            let chain = Chain((*head).next);
            self.give_back(head, head);
            chain
        }
    }

    /// The bucket of a stack.
    fn bucket(&self, stack: u64) -> &AtomicPtr<Activation> {
        &self.buckets[hash::bucket(stack, BITS)]
    }

    /// Takes an unused activation; `None` if there is no memory. The lock is held.
    fn take(&self) -> Option<*mut Activation> {
        let mut first = self.free.load(Ordering::Relaxed);
        if first.is_null() {
            first = memory::map(CHUNK).ok()? as *mut Activation;
            let count = CHUNK as usize / size_of::<Activation>();
            for index in 1..count {
                // SAFETY: inside the chunk, which has no other user.
                unsafe { (*first.add(index - 1)).next = first.add(index) };
            }
        }
        // SAFETY: it is free, and its link leads to the next free one.
        self.free.store(unsafe { (*first).next }, Ordering::Relaxed);
        Some(first)
    }
}

impl Default for Lot {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::parameters::ipath_parameters;
    use std::vec::Vec;

    fn activation(slot: u64) -> Activation {
        // SAFETY: all zeroes is an activation without a record.
        let mut activation: Activation = unsafe { core::mem::zeroed() };
        activation.slot = slot;
        activation
    }

    fn slots(chain: Chain) -> Vec<u64> {
        // SAFETY: the chain belongs to the caller.
        let slot = |at: *mut Activation| unsafe { (*at).slot };
        chain.activations().map(slot).collect()
    }

    #[test]
    fn stacks_are_found_as_they_were_parked() {
        ipath_parameters.system_calls.store(1, Ordering::Relaxed);
        static LOT: Lot = Lot::new();
        let park = |stack: u64, calls: &[u64]| {
            let activations: Vec<_> = calls.iter().map(|&slot| activation(slot)).collect();
            let chain = LOT.copy(activations.iter().map(ptr::from_ref), 0);
            assert_eq!(slots(chain), calls);
            LOT.insert(stack, chain);
        };
        let stacks = 1..50_000u64;
        for stack in stacks.clone() {
            park(stack * 8, &[stack, stack + 1, stack + 2]);
        }
        park(800, &[7]);
        for stack in stacks.clone() {
            let chain = LOT.remove(stack * 8);
            let mut expected = Vec::from([stack, stack + 1, stack + 2]);
            if stack == 100 {
                expected.push(7);
            }
            assert_eq!(slots(chain), expected);
            LOT.free(chain);
            assert!(LOT.remove(stack * 8).is_empty());
        }
        let mut free = Chain(LOT.free.load(Ordering::Relaxed)).activations();
        let used = 3 * stacks.count() + 1;
        assert!(
            free.by_ref().take(used).count() == used,
            "what was taken is free again"
        );
    }
}
