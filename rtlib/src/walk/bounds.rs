//! Where the memory of a thread's stack ends: no word beyond is read.
//!
//! C libraries put a thread's control block, at which its thread pointer is, at the end of its own stack. Of other stacks it
//! is only known in which mapping they are.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::cause::Cause;

use super::frame::StackRange;
use super::outcome::Walk;
use super::walker::Walker;
use crate::arch::clock;
use crate::code::modules;
use crate::os::sys::Direction;
use crate::os::{foreign, maps, sys, thread_pointer};

/// Whether it may be the bounds of the stack's memory where a walk ended.
pub fn is_at(walk: &Walk) -> bool {
    Cause::of_node(walk.root).is_some() && !walk.is_determined
}

impl Walker {
    /// Has a look at the bounds of the thread's stack again, if these were not looked at just before: whether
    /// they are others.
    pub(super) fn look_again(&mut self, slot: u64) -> bool {
        let now = clock::now();
        let before = self.stack;
        let is_known = self.renewed_end == before.high;
        if is_known && now.wrapping_sub(self.renewed) < modules::A_WHILE {
            return false;
        }
        for known in &mut self.stacks {
            if known.holds(slot) {
                *known = StackRange { low: 0, high: 0 };
            }
        }
        let found = self.find_stack(slot);
        self.renewed = now;
        self.renewed_end = self.stack.high;
        found.is_some() && self.stack.high != before.high
    }

    /// Makes the stack that holds `slot` the thread's current one.
    pub(super) fn find_stack(&mut self, slot: u64) -> Option<()> {
        self.stack = self.stack_at(slot)?;
        self.is_own = u64::from(is_own(&self.stack, slot) || is_alternate(slot));
        self.set_quick();
        Some(())
    }

    /// The stack that holds `slot`. It may lie across several mappings, as a goroutine's does where the heap that it
    /// is in has grown or has been given advice.
    pub(super) fn stack_at(&mut self, slot: u64) -> Option<StackRange> {
        if let Some(known) = self.stacks.iter_mut().find(|r| r.holds(slot)) {
            // It may be another stack by now, which ends elsewhere.
            if !sys::may_call() || sys::is_mapped(slot & !(abi::PAGE - 1), known.high) {
                return Some(*known);
            }
            *known = StackRange { low: 0, high: 0 };
        }
        // Most stacks are threads' own. Of those no file has to be read, and no descriptor taken for it.
        // The first thread's control block is elsewhere.
        let (mut range, is_part) = match own(slot).filter(|_| self.is_first == 0) {
            Some(range) => (range, true),
            None => (by_maps(slot).or_else(|| by_reading(slot))?, false),
        };
        let known = self.stacks.iter().position(|r| r.high == range.high);
        let at = known.unwrap_or_else(|| {
            let next = self.next_stack as usize % self.stacks.len();
            self.next_stack += 1;
            next
        });
        if is_part && known.is_some() {
            range.low = range.low.min(self.stacks[at].low);
        }
        self.stacks[at] = range;
        Some(range)
    }
}

/// The end of the stack on which the kernel started the program; 0 until it is known.
static INITIAL_END: AtomicU64 = AtomicU64::new(0);

/// True if the stack that contains `slot` is the calling thread's first one. No other thread ever
/// runs on it.
fn is_own(stack: &StackRange, slot: u64) -> bool {
    let block = thread_pointer::thread_pointer();
    // If the control block's layout is not known, its first word identifies it: the block's own
    // address (psABI 3.4.6).
    let ends_at_control_block = if thread_pointer::tid_offset().is_some() {
        stack.high == block & !7
    } else if slot < block && block.is_multiple_of(8) && stack.holds(block) {
        // SAFETY: a readable word of the stack's mapping.
        unsafe { foreign::read_array(block) == Some(block.to_le_bytes()) }
    } else {
        false
    };
    ends_at_control_block || stack.high == INITIAL_END.load(Ordering::Relaxed)
}

/// True if `slot` is on the thread's alternate signal stack. Code there does not move to another
/// thread.
fn is_alternate(slot: u64) -> bool {
    if !sys::may_call() {
        return false;
    }
    let mut alternate = sys::AlternateStack::NONE;
    // SAFETY: the kernel writes the thread's alternate stack to it.
    unsafe { sys::alternate_stack(&raw mut alternate) };
    slot.wrapping_sub(alternate.low) < alternate.size
}

/// Pages that are asked for at once.
const PAGES: usize = 256;
/// So many pages below `slot` the thread may come before they are asked for again.
const BELOW: usize = 16;

/// The part of the thread's own stack that holds `slot`, if there is nothing but memory that can be read from there
/// up to the control block. What lies below the thread's stack has the stack's guard page between
/// (pthread_attr_setguardsize(3)).
fn own(slot: u64) -> Option<StackRange> {
    let high = thread_pointer::thread_pointer() & !7;
    let top = (high - 1) & !(abi::PAGE - 1);
    let page = slot & !(abi::PAGE - 1);
    if !sys::may_call() || thread_pointer::tid_offset().is_none() || slot >= high {
        return None;
    }
    let above = ((top - page) / abi::PAGE) as usize;
    if above >= PAGES {
        return None;
    }
    let readable = sys::readable_pages::<PAGES>(top, Direction::Down, above + 1 + BELOW)?;
    let low = top.checked_sub((readable as u64).checked_sub(1)? * abi::PAGE)?;
    (low <= page).then_some(StackRange { low, high })
}

/// The stack that holds `slot`, by the mapping that it is in.
fn by_maps(slot: u64) -> Option<StackRange> {
    let mut found: Option<StackRange> = None;
    let read = maps::for_each(|mapping, path| {
        let is_anonymous = path.is_empty() || path.starts_with(b"[anon");
        let range = StackRange {
            low: mapping.start,
            high: mapping.end,
        };
        match &mut found {
            None if range.holds(slot) => {
                found = mapping.read.then_some(range);
                if path == b"[stack]" {
                    INITIAL_END.store(range.high, Ordering::Relaxed);
                }
            }
            None => return true,
            Some(below) if below.high == range.low && mapping.read && is_anonymous => {
                below.high = range.high;
            }
            Some(_) => return false,
        }
        found.is_some()
    });
    let range = match found {
        None if !sys::may_call() => below_control_block(slot)?,
        _ => read.and(found)?,
    };
    Some(below_own_control_block(range, slot))
}

/// The part of the stack with `slot` around it that can be read, where maps cannot: a process may have no descriptor left for it
/// (RLIMIT_NOFILE).
fn by_reading(slot: u64) -> Option<StackRange> {
    const LARGEST: u64 = 64 << 20;
    if !sys::may_call() {
        return None;
    }
    let page = slot & !(abi::PAGE - 1);
    let below = sys::readable_pages::<BELOW>(page, Direction::Down, BELOW)? as u64;
    let low = page - below.checked_sub(1)? * abi::PAGE;
    let mut high = page;
    while high - page < LARGEST {
        let readable = sys::readable_pages::<PAGES>(high, Direction::Up, PAGES).unwrap_or(0);
        high += readable as u64 * abi::PAGE;
        if readable < PAGES {
            break;
        }
    }
    Some(below_own_control_block(StackRange { low, high }, slot))
}

/// What lies above the thread's own stack in the same mapping is not the stack's, and may go.
fn below_own_control_block(mut range: StackRange, slot: u64) -> StackRange {
    if thread_pointer::tid_offset().is_some()
        && range.holds(thread_pointer::thread_pointer())
        && slot < thread_pointer::thread_pointer()
    {
        range.high = thread_pointer::thread_pointer() & !7;
    }
    range
}

/// The stack of a thread that the command did not see.
fn below_control_block(slot: u64) -> Option<StackRange> {
    const LARGEST: u64 = 64 << 20;
    const PIECE: u64 = 64 << 10;
    let high = thread_pointer::thread_pointer() & !7;
    let is_near = slot < high && high - slot <= LARGEST;
    (thread_pointer::tid_offset().is_some() && is_near).then_some(StackRange {
        low: slot & !(PIECE - 1),
        high,
    })
}
