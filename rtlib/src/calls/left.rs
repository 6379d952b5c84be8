//! The identity of a stack that shares one memory range with others ([`super::slices`]).

/// A bit that is set in the identities of all stacks that share a memory range, and in no other key
/// that stacks are parked under.
const OF_SLICE: u64 = 1 << 63;
/// The lowest bit of an identity. It is 0 for stacks that share a memory range: see
/// [`crate::walk::is_stopped`].
const LOWEST: u64 = 1;

/// The identity of a stack that is not running: two hashes over its slot, its registers, and a
/// longer or shorter run of its words.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Left {
    /// The hash over the registers and as many words as belong to the stack alone.
    pub(super) long: u64,
    /// The hash over the words below the frame in which a new stack begins.
    pub(super) short: u64,
}

impl Left {
    /// The identity of no stack.
    pub const NONE: Self = Self { long: 0, short: 0 };

    /// An identity from the long and the short hash.
    pub fn new(long: u64, short: u64) -> Self {
        let key = |hash: u64| (hash | OF_SLICE) & !LOWEST;
        Self {
            long: key(long),
            short: key(short),
        }
    }
}

/// True if `stack` is the identity of a stack that shares a memory range with others.
pub(super) const fn is_slice(stack: u64) -> bool {
    stack & OF_SLICE != 0
}
