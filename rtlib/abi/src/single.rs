//! Single calls: the slowest ones of a function, and its last ones.
//!
//! A thread has a block of [`CALLS_STRIDE`]-byte items for each function whose single calls it
//! keeps:
//!
//! ```text
//! | CallsHead | slowest calls, `slowest` items | last calls, `traced` items |
//! ```
//!
//! Only the thread writes to its blocks. A reader checks the sequence number of each call.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes of an item.
pub const CALLS_STRIDE: u64 = 192;
/// The maximum number of single calls to keep of a function on a thread, in either way.
pub const MOST_SINGLE: u64 = 100_000;
/// Bytes of the area, if a session keeps single calls.
pub const CALLS_BYTES: u64 = 256 << 20;
/// The number of arguments that are kept of a call.
pub const CALL_ARGUMENTS: usize = crate::value::RETURN as usize;
/// The number of functions whose calls within a call are told apart. The time in others is only
/// part of [`SingleCall::nested`].
pub const CALLEES: usize = 5;
/// Set in a word of [`SingleCall::callees`] if earlier calls of the function may be missing: all
/// places were taken.
pub const CALLEE_IS_PARTIAL: u32 = 1 << 31;
/// The number of lists of a thread's blocks. A function's block is in the list with its id modulo
/// this number.
pub const CALL_LISTS: usize = 64;

/// The index of the first item of the next block, if there is none.
pub const NO_BLOCK: u32 = u32::MAX;

/// The first item of a block.
#[repr(C)]
pub struct CallsHead {
    /// The id of the function plus 1. It is stored last, so 0 means that the block is not in use
    /// yet.
    pub function: AtomicU32,
    /// The index of the next block of the list; [`NO_BLOCK`] if there is none.
    pub next: AtomicU32,
    /// The ticks of a call that is kept as one of the slowest, at least.
    pub bar: AtomicU64,
    /// The number of slowest calls that are kept.
    pub filled: AtomicU32,
    /// The number of the fastest of the slowest calls, if all items for them are in use.
    pub fastest: AtomicU32,
    /// The number of last calls that have been written, including overwritten ones.
    pub turn: AtomicU64,
    /// Not used; zero.
    pub reserved: [AtomicU64; 20],
}

/// A call that has ended.
#[repr(C)]
pub struct SingleCall {
    /// Odd while the thread writes; 0 before the first call.
    pub sequence: AtomicU64,
    /// The index of the call's record.
    pub record: AtomicU32,
    /// The id of the thread on which the call has ended, in the target's own pid namespace.
    pub tid: AtomicU32,
    /// Time-stamp counter at the start.
    pub start: AtomicU64,
    /// Time-stamp counter at the end.
    pub end: AtomicU64,
    /// The time of the call in ticks, without the cost of measuring.
    pub wall: AtomicU64,
    /// The part of `wall` in probed functions called from this one.
    pub nested: AtomicU64,
    /// The CPU time in ticks; [`UNKNOWN_CPU`] if it was not measured.
    pub cpu: AtomicU64,
    /// [`CALL_RETURNED`], or 0.
    pub flags: AtomicU64,
    /// The arguments as integers.
    pub arguments: [AtomicU64; CALL_ARGUMENTS],
    /// The return value.
    pub returned: AtomicU64,
    /// Ticks in the functions that were called from this one.
    pub callee_ticks: [AtomicU64; CALLEES],
    /// The ids of these functions plus 1, up to the first 0, with [`CALLEE_IS_PARTIAL`]. Those
    /// after it have no meaning.
    pub callees: [AtomicU32; CALLEES],
    /// Not used; zero.
    pub reserved: [AtomicU32; 3],
}

/// [`SingleCall::flags`]: the call has a return value.
pub const CALL_RETURNED: u64 = 1;
/// [`SingleCall::cpu`] if the CPU time was not measured.
pub const UNKNOWN_CPU: u64 = u64::MAX;

/// The number of the item for a call that is one of the `slowest`, of which `filled` are kept.
/// Otherwise all are in use, and the call takes the place of the `fastest` one.
pub const fn place_of(filled: u32, fastest: u32, slowest: u64) -> u32 {
    if (filled as u64) < slowest {
        filled
    } else {
        fastest
    }
}

/// The number of the fastest of the kept calls, whose ticks `wall_of` returns, and the new bar.
/// `None` if not all items are in use: any call is kept.
pub fn next_bar(filled: u32, slowest: u64, wall_of: impl Fn(u32) -> u64) -> Option<(u32, u64)> {
    if u64::from(filled) < slowest {
        return None;
    }
    let (mut fastest, mut least) = (0, u64::MAX);
    let mut number = 0;
    while number < filled {
        let wall = wall_of(number);
        if wall < least {
            (fastest, least) = (number, wall);
        }
        number += 1;
    }
    // A call that takes as long as the fastest one does not replace it.
    Some((fastest, least.saturating_add(1)))
}

/// The number of items of a block.
pub const fn block_items(slowest: u64, traced: u64) -> u64 {
    1 + slowest + traced
}

const _: () = {
    assert!(size_of::<CallsHead>() == CALLS_STRIDE as usize);
    assert!(size_of::<SingleCall>() == CALLS_STRIDE as usize);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls with many equal times: the slowest are kept, and of equal ones some.
    #[test]
    fn the_slowest_calls_are_kept() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..2000 {
            let mut next = |most: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % most
            };
            let slowest = 1 + next(8);
            let calls = next(40) as usize;
            let span = 1 + next(30);
            let mut walls = [0; 40];
            let (mut kept, mut filled, mut fastest, mut bar) = ([0; 8], 0, 0, 0);
            for wall in &mut walls[..calls] {
                *wall = match round % 3 {
                    0 => next(span),
                    // Rising times, and falling ones.
                    1 => u64::from(filled) + next(3),
                    _ => 1000 - next(span) * 7,
                };
                if *wall < bar {
                    continue;
                }
                let number = place_of(filled, fastest, slowest);
                kept[number as usize] = *wall;
                filled = filled.max(number + 1);
                if let Some((number, least)) = next_bar(filled, slowest, |n| kept[n as usize]) {
                    (fastest, bar) = (number, least);
                }
            }
            let filled = filled as usize;
            assert_eq!(filled, calls.min(slowest as usize));
            walls[..calls].sort_unstable_by(|a, b| b.cmp(a));
            kept[..filled].sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(kept[..filled], walls[..filled]);
        }
    }
}
