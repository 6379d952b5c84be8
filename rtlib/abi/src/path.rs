//! Paths inside functions: what their hooks do, and the sums of the activations on the way.
//!
//! Each activation that is on a path or in a loop has a [`Slot`]. It is found by the canonical
//! frame address, which no two living activations have in common, on whatever stack or thread they
//! are.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

/// What a hook does. It lies behind the trampoline's code, and the hook passes its address.
#[repr(C)]
pub struct Row {
    /// One of [`BEGINS`], [`ADDS`], [`ENDS`] and [`RESTARTS`].
    pub kind: u8,
    /// 1 if the frame address is relative to the frame pointer, 0 if to the stack pointer.
    pub by_fp: u8,
    /// One of [`EACH`], [`TABLE`] and [`HISTOGRAM`].
    pub counters: u8,
    /// Not used; zero.
    pub reserved: u8,
    /// The distance of the key of the activation from the register, in bytes. The key is the
    /// canonical frame address, and 16 times `first` more.
    pub key: i32,
    /// The number of the function's first counter. It identifies the function.
    pub first: u32,
    /// Not used; zero.
    pub reserved_2: u32,
    /// The number of paths.
    pub paths: u64,
    /// The number to add to the sum.
    pub add: u64,
    /// The sum of the path that begins.
    pub start: u64,
    /// If the path is timed, the location of the frame at the hook: an encoded
    /// [`Standing`](crate::point::Standing).
    pub standing: u64,
}

impl Row {
    /// The word that identifies the activation with this key. The key is an address, which has 47
    /// bits, or somewhat more; the number of the function is above it.
    #[inline(always)]
    #[must_use]
    pub const fn activation(&self, key: u64) -> u64 {
        key.wrapping_add((self.first as u64) << FUNCTION_SHIFT)
    }
}

/// See [`Row::activation`].
pub const FUNCTION_SHIFT: u32 = 48;

/// A path begins, with the sum [`Row::start`].
pub const BEGINS: u8 = 0;
/// [`Row::add`] is added to the sum.
pub const ADDS: u8 = 1;
/// [`Row::add`] is added to the sum, which is then the number of the path. The activation ends.
pub const ENDS: u8 = 2;
/// As [`ENDS`], and another path of the activation begins with the sum [`Row::start`].
pub const RESTARTS: u8 = 3;

/// Each number of a path has a counter.
pub const EACH: u8 = 0;
/// The counters are a hash table.
pub const TABLE: u8 = 1;
/// Each power of two has a counter, for the numbers from it to the next one.
pub const HISTOGRAM: u8 = 2;
/// The number of counters of a histogram.
pub const POWERS: u32 = 64;

const _: () = assert!(
    size_of::<Row>() == 48
        && offset_of!(Row, key) == 4
        && offset_of!(Row, first) == 8
        && offset_of!(Row, paths) == 16
        && offset_of!(Row, add) == 24
        && offset_of!(Row, start) == 32
        && offset_of!(Row, standing) == 40
);

/// The counters of a function before those of its paths: [`BEGUN`] and [`UNKNOWN`], and
/// [`UNCOUNTED`].
pub const BEFORE: u32 = 3;
/// The offset of the counter of activations that have begun, by a call or by another arrival.
pub const BEGUN: u32 = 0;
/// The offset of the counter of paths that have ended and whose number is not known: their
/// activation had begun before the hooks were there, or has no slot.
pub const UNKNOWN: u32 = 1;
/// The offset of the counter of paths that have ended and have no room in the hash table.
pub const UNCOUNTED: u32 = 2;

/// The number of entries of a hash table of counters. An entry is two words: the number of the path
/// plus 1, or 0 if it is free, and the count.
pub const ENTRIES: u64 = 1 << 10;
/// The highest bits of the product of this and the number of a path, modulo 2^64, are the index of
/// the entry that is tried first (Knuth, The Art of Computer Programming 6.4: 2^64 divided by the
/// golden ratio).
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// The number of entries that are tried for a path, one after the other.
pub const TRIED_ENTRIES: u64 = 16;

/// An activation on a path.
#[repr(C)]
pub struct Slot {
    /// The activation ([`Row::activation`]). A free slot has no function: the word is 0, or
    /// [`Slot::page`] of the last activation in a slot of a frame.
    pub activation: AtomicU64,
    /// The sum of the path up to here, shifted to the left by [`SUM_SHIFT`].
    pub sum: AtomicU64,
}

impl Slot {
    /// A free slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            activation: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// [`Row::first`] of the function of the activation; 0 if the slot is free.
    #[must_use]
    pub const fn function(activation: u64) -> u32 {
        (activation >> FUNCTION_SHIFT) as u32
    }

    /// The address of the page of stack with the activation's frame address.
    #[inline(always)]
    #[must_use]
    pub const fn page(activation: u64) -> u64 {
        let function = Self::function(activation) as u64;
        let key = activation.wrapping_sub(function << FUNCTION_SHIFT);
        key.wrapping_sub(FRAME_ALIGN * function) & !(crate::PAGE - 1)
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

/// The table of slots, in pages that are zeroed in a forked child.
///
/// A frame's slot is the first choice. After it has been taken once, it is for frames on the same
/// page of stack. Only one thread at a time runs there, so it is taken without a lock. If it is for
/// another page or taken, one of the others is used.
#[repr(C, align(4096))]
pub struct Slots {
    /// The slots of frames, by [`frame_slot`].
    pub of_frames: [Slot; FRAME_SLOTS],
    /// The others, by the hash of the key. They are taken with a lock.
    pub others: [Slot; SLOTS],
}

/// The number of slots of frames, a power of two: one for each [`FRAME_ALIGN`] bytes of stack.
pub const FRAME_SLOTS: usize = 1 << 13;
/// Canonical frame addresses are multiples of this number (psABI 3.2.2).
pub const FRAME_ALIGN: u64 = 16;

/// The index of the slot of a frame.
pub const fn frame_slot(key: u64) -> usize {
    (key / FRAME_ALIGN) as usize % FRAME_SLOTS
}

/// See [`Slot::sum`]. So it is the offset of the path's counter in bytes.
pub const SUM_SHIFT: u32 = size_of::<u64>().trailing_zeros();
/// The number of slots that are not of frames, a power of two.
pub const SLOTS: usize = 1 << 11;
/// The number of those slots that are tried for an activation, one after the other.
pub const TRIED_SLOTS: usize = 8;
/// The length of the table of slots in bytes.
pub const SLOTS_BYTES: u64 = size_of::<Slots>() as u64;

const _: () = assert!(crate::count::MOST_COUNTERS <= 1 << (u64::BITS - FUNCTION_SHIFT));
const _: () = assert!(size_of::<Slot>() == 16 && SLOTS_BYTES.is_multiple_of(crate::PAGE));
