//! Results of walks, and the options for walks.

use core::sync::atomic::Ordering;

use abi::cause::Cause;
use abi::segment::{ROOT_CUT, ROOT_OVERFLOW};

use crate::os::hash;
use crate::os::parameters::ipath_parameters;

/// The result of a walk. If all rules are cached, its return addresses are in the buffers as sites,
/// the numbers of those rules. Otherwise they are there as frames.
#[derive(Clone, Copy)]
pub struct Walk {
    /// The number of frames of the path.
    pub len: u64,
    /// Hash over the function, the return addresses and the end of the path.
    pub hash: u64,
    /// The end of the path: one of the segment's `ROOT_*` nodes or the node of a [`Cause`].
    pub root: u32,
    /// The identity of the stack: see [`Stack::id`](super::Stack::id).
    pub stack: u64,
    /// True if `stack` distinguishes the walk's stack from all others in use.
    pub is_told: bool,
    /// The number of stack words that the walk has read.
    pub(super) reads: u64,
    /// True if the words read alone determine the result, and not also the bounds of the stack's
    /// mapping.
    pub(super) is_determined: bool,
    /// True if the frames are stored as sites.
    pub has_sites: bool,
}

impl Walk {
    /// True if `--depth` has cut the path.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.root == ROOT_CUT
    }

    /// True if the path lacks outer frames because `--depth` has cut it or there was no room. False
    /// for a walk that could not continue.
    pub fn is_short(&self) -> bool {
        self.is_cut() || self.root == ROOT_OVERFLOW
    }

    /// The state before the first frame, on a stack in memory that ends at `high`.
    pub fn begin(function: u32, high: u64) -> Self {
        Self {
            len: 0,
            hash: begin_hash(function),
            root: 0,
            stack: high,
            is_told: false,
            reads: 0,
            is_determined: false,
            has_sites: false,
        }
    }

    /// A walk that ends before its first frame.
    pub(super) fn stopped(function: u32, high: u64, cause: Cause) -> Self {
        let mut walk = Self::begin(function, high);
        walk.root = cause.node();
        walk.hash = hash::mix(walk.hash, u64::from(walk.root));
        walk
    }

    /// The result of a walk without room for its frames.
    pub(super) fn overflow(function: u32, high: u64) -> Self {
        Self {
            root: ROOT_OVERFLOW,
            ..Self::begin(function, high)
        }
    }
}

/// The hash of a path of `function` before its frames and its root are mixed in, the innermost
/// frame first.
#[inline(always)]
pub fn begin_hash(function: u32) -> u64 {
    hash::mix(hash::MULTIPLIER, u64::from(function))
}

/// The reason why a walk could not continue.
#[derive(Clone, Copy)]
pub enum Obstacle {
    /// The bounds of the stack are unknown.
    Stack,
    /// The rule of a return address (the first value) is not cached. The second value is the frame
    /// pointer minus the stack pointer at the return, in bytes.
    Rule(u64, u64),
    /// A frame needs the full walk.
    Full,
    /// The path has more frames than the buffers have room for.
    Depth,
}

/// True if recursion is to be folded.
#[inline(always)]
pub fn folds() -> bool {
    ipath_parameters.folds.load(Ordering::Relaxed) != 0
}

/// The maximum number of frames in a path; `u64::MAX` without a limit.
#[inline(always)]
pub fn depth_limit() -> u64 {
    // 0 keeps all: one less wraps to the largest number.
    let depth = ipath_parameters.depth.load(Ordering::Relaxed);
    if depth == 0 { u64::MAX } else { depth }
}
