//! Ends that may be another call's.
//!
//! A return ends the activation of its function with its slot. If stacks take turns in one memory by
//! copying, several calls of a function have one slot, and the list has only the last of them. Its
//! activation must not be ended by the return of an earlier one.
//!
//! Such a program looks like one that jumps out of its calls: an entry finds an activation at its own
//! slot or below, and nothing has announced that this was left. So a slot at which a call of a function
//! was left behind is *doubtful* for that function. Its further calls there go the slow way, and their
//! activations keep a hash of the stack and the registers at the entry.
//!
//! | state | a return ends the activation |
//! | --- | --- |
//! | not known | if it is to the activation's call site |
//! | stacks take turns | if the hash at the exit is equal as well |
//! | calls are left by jumps | always |
//!
//! Callees may write to their caller's frame, and not all code keeps registers. So hashes that differ prove
//! nothing by themselves, and without a proof they do not count.
//!
//! | seen at a doubtful slot | proves |
//! | --- | --- |
//! | a return without an activation | that stacks take turns |
//! | a return to another call site than the activation's | the same |
//! | a return with the hash of a call that was left behind, and not the activation's | the same |
//! | 256 ends and none of these | that calls are left by jumps |

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::left::Left;
use crate::os::{hash, parameters};

/// Ends without a proof after which the program is one that jumps.
const ENOUGH: u32 = 256;

const BITS: u32 = 16;
const WORDS: usize = 1 << (BITS - 6);
const MARK_BITS: u32 = 8;

/// What is known of the program.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
/// Nothing yet.
const UNKNOWN: u32 = 0;
/// A call was left behind.
const OPEN: u32 = 1;
/// Stacks take turns.
const TURNS: u32 = 2;
/// Calls are left by jumps.
const JUMPS: u32 = 3;

/// Ends in the state [`OPEN`].
static ENDS: AtomicU32 = AtomicU32::new(0);

/// A bit for each hash of a doubtful slot. Equal hashes cost time only.
static SLOTS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// What an activation has found at its entry.
struct Mark {
    slot: AtomicU64,
    hash: AtomicU64,
}

/// Hashes of calls that were left behind, each at its place; the last one that has it counts.
static BEHIND: [AtomicU64; 1 << BEHIND_BITS] = [const { AtomicU64::new(0) }; 1 << BEHIND_BITS];
const BEHIND_BITS: u32 = 9;

/// By slot. If two have one place, the first one's end is not known.
static MARKS: [Mark; 1 << MARK_BITS] = [const {
    Mark {
        slot: AtomicU64::new(0),
        hash: AtomicU64::new(0),
    }
}; 1 << MARK_BITS];

/// The word and the bit of a slot, as long as the function stays instrumented: later, calls that began
/// before return without an activation.
#[inline(always)]
fn bit(function: u32, slot: u64) -> (&'static AtomicU64, u64) {
    let function = u64::from(parameters::generation(function)) << 16 ^ u64::from(function);
    let at = hash::bucket(slot ^ function.rotate_right(16), BITS);
    (&SLOTS[at / 64 % WORDS], 1 << (at % 64))
}

fn mark(slot: u64) -> &'static Mark {
    &MARKS[hash::bucket(slot, MARK_BITS)]
}

/// The hash that the activation with this slot has found; 0 if that is not known.
fn kept(slot: u64) -> u64 {
    let mark = mark(slot);
    match mark.slot.load(Ordering::Relaxed) == slot {
        true => mark.hash.load(Ordering::Relaxed),
        false => 0,
    }
}

fn behind(hash: u64) -> &'static AtomicU64 {
    &BEHIND[hash::bucket(hash, BEHIND_BITS)]
}

/// True if a return of the function through `slot` may be another call's than the activation's.
#[inline(always)]
pub fn is_doubtful(function: u32, slot: u64) -> bool {
    let state = STATE.load(Ordering::Relaxed);
    if state == UNKNOWN || state == JUMPS {
        return false;
    }
    let (word, bit) = bit(function, slot);
    word.load(Ordering::Relaxed) & bit != 0
}

/// Notes that a call was left behind. True if that is new.
pub fn note(function: u32, slot: u64) -> bool {
    let _ = STATE.compare_exchange(UNKNOWN, OPEN, Ordering::Relaxed, Ordering::Relaxed);
    let hash = kept(slot);
    behind(hash).store(hash, Ordering::Relaxed);
    let (word, bit) = bit(function, slot);
    word.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

/// Notes the hash that the innermost activation with this slot has found at its entry, if that is known.
pub fn keep(slot: u64, found: Option<Left>) {
    let mark = mark(slot);
    let (slot, hash) = found.map_or((0, 0), |found| (slot, found.long));
    mark.hash.store(hash, Ordering::Relaxed);
    mark.slot.store(slot, Ordering::Relaxed);
}

/// Notes that stacks take turns.
#[cold]
pub fn prove() {
    STATE.store(TURNS, Ordering::Relaxed);
}

/// True if the activation that was kept with this slot ends, by what is found at an exit. `is_its_site` is false
/// if the return is to another call site.
pub fn ends(slot: u64, found: Option<Left>, is_its_site: bool) -> bool {
    let state = STATE.load(Ordering::Relaxed);
    if state == JUMPS {
        return true;
    }
    let hash = found.map_or(0, |found| found.long);
    let is_same = hash != 0 && hash == kept(slot);
    let was_left = || hash != 0 && behind(hash).load(Ordering::Relaxed) == hash;
    if !is_its_site || !is_same && was_left() {
        prove();
        return false;
    }
    if state == OPEN && ENDS.fetch_add(1, Ordering::Relaxed) >= ENOUGH {
        let _ = STATE.compare_exchange(OPEN, JUMPS, Ordering::Relaxed, Ordering::Relaxed);
    }
    is_same || state == OPEN
}
