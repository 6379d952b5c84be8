//! What walks come to, and what they are to be like.

use core::sync::atomic::Ordering;

use abi::cause::Cause;
use abi::segment::{ROOT_CUT, ROOT_OVERFLOW};

use crate::os::hash;
use crate::os::parameters::ipath_parameters;

/// What a walk came to. Its return addresses are told by the thread's sites, the numbers of their rules, where
/// those are known; else by its frames.
#[derive(Clone, Copy)]
pub struct Walk {
    /// Frames found.
    pub len: u64,
    /// Hash over the function, the return addresses and the end.
    pub hash: u64,
    /// How it ended, one of the segment's `ROOT_*` nodes.
    pub root: u32,
    /// The identity of the stack: see [`Stack::id`](super::Stack::id).
    pub stack: u64,
    /// True if `stack` distinguishes that stack from all others in use.
    pub is_told: bool,
    /// Words read.
    pub(super) reads: u64,
    /// Whether those words alone have led to all this, and not the bounds of the stack's mapping.
    pub(super) is_determined: bool,
    /// Whether sites tell its frames.
    pub has_sites: bool,
}

impl Walk {
    /// True if `--depth` has cut the path.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.root == ROOT_CUT
    }

    /// True if the path lacks frames further out.
    pub fn is_short(&self) -> bool {
        self.is_cut() || self.root == ROOT_OVERFLOW
    }

    /// Nothing walked yet, on a stack in memory that ends at `high`.
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

    /// What a walk comes to that there is no room for.
    pub(super) fn overflow(function: u32, high: u64) -> Self {
        Self {
            root: ROOT_OVERFLOW,
            ..Self::begin(function, high)
        }
    }
}

/// The hash of a path of `function` before its frames, the innermost first, and its root are mixed in.
#[inline(always)]
pub fn begin_hash(function: u32) -> u64 {
    hash::mix(hash::MULTIPLIER, u64::from(function))
}

/// Why a walk could not go on.
#[derive(Clone, Copy)]
pub enum Obstacle {
    /// The stack's bounds are not known.
    Stack,
    /// The rule of this return address is not in the cache; the frame pointer is so many bytes above the stack pointer there.
    Rule(u64, u64),
    /// A frame needs the full walk.
    Full,
    /// More frames than there is room for.
    Depth,
}

/// Whether the user wants recursion folded.
#[inline(always)]
pub fn folds() -> bool {
    ipath_parameters.folds.load(Ordering::Relaxed) != 0
}

/// The most frames that are kept of a path.
#[inline(always)]
pub fn depth_limit() -> u64 {
    // 0 keeps all: one less wraps to the largest number.
    let depth = ipath_parameters.depth.load(Ordering::Relaxed);
    if depth == 0 { u64::MAX } else { depth }
}
