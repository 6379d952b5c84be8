//! Returns that may belong to another call than the one whose activation they would end.
//!
//! A return ends the activation with the same function and slot. If stacks take turns in one memory
//! range by copying, several calls of a function have the same slot. The list contains only the
//! last of them. The return of an earlier call must not end the last call's activation.
//!
//! Such a program looks like one that jumps out of its calls: an entry finds an activation at its
//! own slot or below, without an announced jump. Then the slot of the activation that was left
//! behind is *doubtful* for its function. Later calls of the function there take the slow path.
//! Their activations keep a hash of the stack and the registers at the entry.
//!
//! | state | a return ends the activation |
//! | --- | --- |
//! | not known | if it goes to the activation's call site |
//! | stacks take turns | if it goes to the call site and the hash at the exit is equal |
//! | calls are left by jumps | always |
//!
//! Callees may write to their caller's frame, and not all code preserves registers. So different
//! hashes alone prove nothing, and they have no effect without a proof.
//!
//! | observation at a doubtful slot | proves |
//! | --- | --- |
//! | a return without an activation | that stacks take turns |
//! | a return to a call site other than the activation's | that stacks take turns |
//! | a return with the hash of a call left behind, not the activation's | that stacks take turns |
//! | 256 ends and none of these | that calls are left by jumps |

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::left::Left;
use crate::code::coroutines;
use crate::os::{hash, parameters};

/// The number of ends without a proof after which the state is [`JUMPS`].
const ENOUGH: u32 = 256;

const BITS: u32 = 16;
const WORDS: usize = 1 << (BITS - 6);
const MARK_BITS: u32 = 8;

/// The state of the program, one of the constants below.
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".bss.every_call"))]
#[allow(non_upper_case_globals)]
pub static ipath_doubt: AtomicU32 = AtomicU32::new(UNKNOWN);
/// No call was left behind.
const UNKNOWN: u32 = 0;
/// A call was left behind, and nothing is proven.
const OPEN: u32 = 1;
/// Stacks take turns.
pub const TURNS: u32 = 2;
/// Calls are left by jumps.
const JUMPS: u32 = 3;

/// The number of ends in the state [`OPEN`].
static ENDS: AtomicU32 = AtomicU32::new(0);

/// A set of bits: one is set if a function has a doubtful slot with this hash. A collision only
/// costs time.
static SLOTS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The hash that was taken at the entry of a call.
struct Mark {
    slot: AtomicU64,
    hash: AtomicU64,
}

/// Hashes of calls that were left behind. A new hash replaces an older one in the same bucket.
static BEHIND: [AtomicU64; 1 << BEHIND_BITS] = [const { AtomicU64::new(0) }; 1 << BEHIND_BITS];
const BEHIND_BITS: u32 = 9;

/// Marks by slot. A new mark replaces an older one in the same bucket. The hash of the older call
/// is then unknown. If stacks take turns, its return does not end its activation.
static MARKS: [Mark; 1 << MARK_BITS] = [const {
    Mark {
        slot: AtomicU64::new(0),
        hash: AtomicU64::new(0),
    }
}; 1 << MARK_BITS];

/// The word and the bit of a slot for this generation of the function. If the function is removed
/// and added again, calls from before return without an activation, which proves nothing.
#[inline(always)]
fn bit(function: u32, slot: u64) -> (&'static AtomicU64, u64) {
    let function = u64::from(parameters::generation(function)) << 16 ^ u64::from(function);
    let at = hash::bucket(slot ^ function.rotate_right(16), BITS);
    (&SLOTS[at / 64 % WORDS], 1 << (at % 64))
}

/// The bucket of a slot in [`MARKS`], which may contain the mark of another slot.
fn mark(slot: u64) -> &'static Mark {
    &MARKS[hash::bucket(slot, MARK_BITS)]
}

/// The hash taken at the entry of the activation with this slot; 0 if it is not known.
fn kept(slot: u64) -> u64 {
    let mark = mark(slot);
    if mark.slot.load(Ordering::Relaxed) == slot {
        mark.hash.load(Ordering::Relaxed)
    } else {
        0
    }
}

/// The bucket of a hash in [`BEHIND`], which may contain another hash.
fn behind(hash: u64) -> &'static AtomicU64 {
    &BEHIND[hash::bucket(hash, BEHIND_BITS)]
}

/// True if a return of the function through `slot` may belong to another call than the activation.
#[inline(always)]
pub fn is_doubtful(function: u32, slot: u64) -> bool {
    let state = ipath_doubt.load(Ordering::Relaxed);
    if state == UNKNOWN || state == JUMPS {
        return false;
    }
    let (word, bit) = bit(function, slot);
    word.load(Ordering::Relaxed) & bit != 0
}

/// True if stacks take turns. Spans are then not timed: their ends could be those of another stack.
#[inline(always)]
pub fn do_stacks_take_turns() -> bool {
    ipath_doubt.load(Ordering::Relaxed) == TURNS
}

/// Notes that a call of `function` with its return address at `slot` was left behind. True if the
/// slot was not doubtful for the function before.
pub fn note(function: u32, slot: u64) -> bool {
    let _ = ipath_doubt.compare_exchange(UNKNOWN, OPEN, Ordering::Relaxed, Ordering::Relaxed);
    coroutines::distrust_callers();
    let hash = kept(slot);
    behind(hash).store(hash, Ordering::Relaxed);
    let (word, bit) = bit(function, slot);
    word.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

/// Notes the hash taken at the entry of the innermost activation with this slot. If `found` is
/// `None`, the hash is unknown from now on.
pub fn keep(slot: u64, found: Option<Left>) {
    let mark = mark(slot);
    let (slot, hash) = found.map_or((0, 0), |found| (slot, found.long));
    mark.hash.store(hash, Ordering::Relaxed);
    mark.slot.store(slot, Ordering::Relaxed);
}

/// Notes that stacks take turns.
#[cold]
pub fn prove() {
    ipath_doubt.store(TURNS, Ordering::Relaxed);
}

/// True if a return through `slot`, with the hash `found`, ends the activation with this slot.
/// `is_its_site` is false if the return goes to a call site other than the activation's. Counts the
/// end, and notes what it proves.
pub fn ends(slot: u64, found: Option<Left>, is_its_site: bool) -> bool {
    let state = ipath_doubt.load(Ordering::Relaxed);
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
        let _ = ipath_doubt.compare_exchange(OPEN, JUMPS, Ordering::Relaxed, Ordering::Relaxed);
    }
    is_same || state == OPEN
}
