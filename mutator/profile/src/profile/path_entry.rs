//! A call path of a profile.

use serde::{Deserialize, Serialize};

use super::apart::ByValue;
use super::counts::{self, Counts};
use super::function;
use super::process::Spreads;

/// A call path into a function, and the cost of its calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathEntry {
    /// Index into [`Profile::functions`](super::Profile::functions).
    pub function: usize,
    /// Indexes into [`Profile::frames`](super::Profile::frames), from the function's caller
    /// outwards.
    pub stack: Vec<usize>,
    /// True if the last frame is a known root, the code contradicts no edge, and no exception was
    /// being delivered in a frame.
    pub complete: bool,
    /// The index in `stack` of the first call site, from the function outwards, that cannot have
    /// led to the frame below it. `None` if no such call site is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradicted: Option<usize>,
    /// The thread's id, in ipath's pid namespace. `None` unless the paths of each thread are kept
    /// apart.
    #[serde(default)]
    pub thread: Option<u32>,
    /// Index into [`Profile::processes`](super::Profile::processes), if the paths of each process
    /// are kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// Index into [`Session::phases`](super::Session::phases): the phase in which the calls began.
    /// `None` unless paths are kept apart by phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<usize>,
    /// The value of the calls ([`Session::by`](super::Session::by)). `None` unless paths are kept
    /// apart by a value, and for calls without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ByValue>,
    /// True if the calls took at least [`Session::slower_ns`](super::Session::slower_ns).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slower: bool,
    /// The number of activations that ended by an exception or longjmp. `None` if exits are not
    /// patched.
    #[serde(default = "counts::zero", skip_serializing_if = "counts::is_zero")]
    pub unwound: Option<u64>,
    /// The number of activations that still run. `None` if exits are not patched.
    #[serde(default = "counts::zero", skip_serializing_if = "counts::is_zero")]
    pub open: Option<u64>,
    /// The number of activations that left by a tail call. Their times exclude the callee.
    #[serde(default, skip_serializing_if = "function::is_zero")]
    pub tail: u64,
    /// The calls on the path and the other metrics.
    pub metrics: Counts,
    /// The distribution of the path's sums over the processes. `None` if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Box<Spreads>>,
}

impl PathEntry {
    /// The number of calls on this path if it is not complete, else 0. Also 0 for an entry without
    /// frames: it holds the calls of all paths beyond the limit.
    pub fn incomplete(&self) -> u64 {
        if self.complete || self.stack.is_empty() {
            0
        } else {
            self.metrics.count
        }
    }
}
