//! The end of the memory of a thread's stack. No word beyond it is read.
//!
//! C libraries place a thread's control block, to which its thread pointer points, at the end of
//! its stack. For other stacks, only the mapping is known.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::cause::Cause;

use super::frame::StackRange;
use super::outcome::Walk;
use super::walker::Walker;
use crate::arch::clock;
use crate::code::modules;
use crate::os::sys::Direction;
use crate::os::{foreign, maps, sys, thread_pointer};

/// True if the walk may have ended at the bounds of the stack's memory.
pub fn is_at(walk: &Walk) -> bool {
    Cause::of_node(walk.root).is_some() && !walk.is_determined
}

impl Walker {
    /// Checks the bounds of the thread's stack again, unless they were checked just before. True if
    /// they have changed.
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

    /// Makes the stack that contains `slot` the thread's current one. `None` if its bounds cannot
    /// be determined.
    pub(super) fn find_stack(&mut self, slot: u64) -> Option<()> {
        self.stack = self.stack_at(slot)?;
        self.is_own = u64::from(is_own(&self.stack, slot) || is_alternate(slot));
        self.set_quick();
        Some(())
    }

    /// The stack that contains `slot`; `None` if its bounds cannot be determined. It may span
    /// several mappings, such as a goroutine's stack in a heap that has grown or has been given
    /// advice (madvise(2)).
    pub(super) fn stack_at(&mut self, slot: u64) -> Option<StackRange> {
        if let Some(known) = self.stacks.iter_mut().find(|r| r.holds(slot)) {
            // It may have become another stack, with another end.
            if !sys::may_call() || sys::is_mapped(slot & !(abi::PAGE - 1), known.high) {
                return Some(*known);
            }
            *known = StackRange { low: 0, high: 0 };
        }
        // Most stacks are the thread's own. They are found without opening a file, which needs a
        // descriptor. The first thread's control block is elsewhere.
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

/// Pages queried at once.
const PAGES: usize = 256;
/// The number of pages below `slot` that are included, so that a deeper stack needs no new query
/// soon.
const BELOW: usize = 16;

/// The part of the thread's own stack that contains `slot`, if all memory from there up to the
/// control block is readable; otherwise `None`. Memory below the thread's stack is separated from
/// it by the stack's guard page (pthread_attr_setguardsize(3)).
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

/// The stack that contains `slot`, as the mapping that contains it. `None` if no readable mapping
/// does, or if the maps cannot be read.
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

/// The readable part of the stack around `slot`, for when the maps cannot be read: a process may
/// have no descriptor left for them (RLIMIT_NOFILE). `None` if the memory at `slot` is not readable
/// or the kernel cannot be asked.
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

/// Cuts off the part of the mapping above the thread's own stack. It does not belong to the stack,
/// and may be unmapped.
fn below_own_control_block(mut range: StackRange, slot: u64) -> StackRange {
    if thread_pointer::tid_offset().is_some()
        && range.holds(thread_pointer::thread_pointer())
        && slot < thread_pointer::thread_pointer()
    {
        range.high = thread_pointer::thread_pointer() & !7;
    }
    range
}

/// The range below the control block, for a thread that the command has not seen. `None` if `slot`
/// is not in it.
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
