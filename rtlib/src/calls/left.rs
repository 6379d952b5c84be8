//! What a stack that takes turns with others in one memory leaves there, by which it is known ([`super::slices`]).

/// Bit of all keys, by which they differ from what other stacks are parked under.
const OF_SLICE: u64 = 1 << 63;
/// Their lowest bit is 0: see [`crate::walk::is_stopped`].
const LOWEST: u64 = 1;

/// What a stack leaves when it is switched from: two hashes over its slot and registers, and more of its words or less.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Left {
    /// Of the registers and as many words as are the stack's own.
    pub(super) long: u64,
    /// Of those below the frame that a new stack begins in.
    pub(super) short: u64,
}

impl Left {
    /// None: nothing has been left.
    pub const NONE: Self = Self { long: 0, short: 0 };

    /// With the long and the short hash.
    pub fn new(long: u64, short: u64) -> Self {
        let key = |hash: u64| (hash | OF_SLICE) & !LOWEST;
        Self {
            long: key(long),
            short: key(short),
        }
    }
}

/// Whether a stack is parked under what a slice has left.
pub(super) const fn is_slice(stack: u64) -> bool {
    stack & OF_SLICE != 0
}
