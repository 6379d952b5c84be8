//! A function of a profile.

use serde::{Deserialize, Serialize};

use super::counts::FunctionTotals;
use super::frame_loop::FrameLoop;
use super::inlined_copy::InlinedCopy;
use super::position::position;
use super::process::{InProcess, Spreads};
use super::single::SingleCall;
use super::throttled::Throttled;

/// An instrumented function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// The demangled name, or `module+0xADDR` if it has no name.
    pub name: String,
    /// The linkage name. Empty if it has none.
    pub linkage: String,
    /// The function's module: an index into [`Profile::modules`](super::Profile::modules).
    pub module: usize,
    /// The link-time address of the function's start, as stated in the module's file.
    pub address: u64,
    /// The function's size in bytes.
    pub size: u64,
    /// The source file of the entry, by the debug information. `None` if it was not looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of the function's entry in `file`. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The tactic that patched the function's entry.
    pub entry: String,
    /// The tactics that patched the exits, in address order. Empty if no exit is patched.
    #[serde(default)]
    pub exits: Vec<String>,
    /// The time at which the function was first instrumented, in nanoseconds since the start of the
    /// session. `None` if it has been instrumented from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// How long the function was removed, and so not measured, after it was first instrumented, in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub away_ns: u64,
    /// The metrics that the function measures now, `count` first. `None` if it has measured all of
    /// [`Profile::metrics`](super::Profile::metrics) from the start. Calls that were not measured
    /// by a metric contribute no values to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Vec<String>>,
    /// Set if `--max-overhead` has throttled the function. Its times are those of the calls that
    /// were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Throttled>,
    /// The function's other linkage names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Linkage names of the function's parts and copies that are called separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clones: Vec<String>,
    /// The number of the function's inlined copies.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inlined: u64,
    /// True for a probe point: the instruction at `address`, whose executions are counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub point: bool,
    /// The loop that is timed by itself, if this is not a whole function. It begins at `address`.
    /// Its calls are entries of the loop.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub of_loop: Option<Box<FrameLoop>>,
    /// The inlined copy that is measured by itself, if this is not a whole function. It begins at
    /// `address`. Its calls are executions of the copy. `name` is that of the inlined function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlined_copy: Option<Box<InlinedCopy>>,
    /// True if these are the paths inside a function, timed by themselves. Its calls are paths that
    /// have begun. The first frame of its call paths is the path inside the function
    /// ([`Frame::path`](super::Frame::path)), unless that has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_paths: bool,
    /// The number of activations that left by a tail call. Their times exclude the callee.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail: u64,
    /// True if the function has been removed from a session that continues.
    #[serde(skip)]
    pub is_removed: bool,
    /// True if the calls of the function are not measured, only its edges are counted. Known only
    /// while the session continues.
    #[serde(skip)]
    pub only_edges: bool,
    /// The sum of all paths of the function.
    pub totals: FunctionTotals,
    /// The distribution of the function's sums over the processes. `None` if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Box<Spreads>>,
    /// The part of the function's totals in each process that has called it. Empty if the profile
    /// is of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<InProcess>,
    /// The slowest calls, the slowest first. Empty if none are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<SingleCall>,
    /// The last calls of each thread, ordered by their starts. Empty if none are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<SingleCall>,
}

/// The part of a function that a row measures. Rows of the same address differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FunctionPart {
    /// The calls of the function.
    Whole,
    /// The instruction at the address.
    Point,
    /// The loop that begins at the address.
    Loop,
    /// The paths inside the function.
    Paths,
    /// The inlined copy with this entry ([`InlinedCopy::entry`]).
    Copy(u64),
}

/// The time for which a function was instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// See [`Function::since_ns`].
    pub since_ns: Option<u64>,
    /// See [`Function::away_ns`].
    pub away_ns: u64,
}

impl Function {
    /// The time for which the function was instrumented.
    pub fn presence(&self) -> Presence {
        Presence {
            since_ns: self.since_ns,
            away_ns: self.away_ns,
        }
    }

    /// True if it is a part of a function that is measured by itself: a loop, an inlined copy, or
    /// paths.
    pub fn is_span(&self) -> bool {
        !matches!(self.part(), FunctionPart::Whole | FunctionPart::Point)
    }

    /// The part of the function that is measured.
    pub fn part(&self) -> FunctionPart {
        match (&self.inlined_copy, &self.of_loop) {
            _ if self.point => FunctionPart::Point,
            (Some(copy), _) => FunctionPart::Copy(copy.entry),
            (None, Some(_)) => FunctionPart::Loop,
            (None, None) if self.timed_paths => FunctionPart::Paths,
            (None, None) => FunctionPart::Whole,
        }
    }

    /// The source position of the entry as `FILE:LINE`, without the file's directory, or `FILE` if
    /// the line is not known. For a loop, its lines as `FILE:LINE-LINE`. For an inlined copy, the
    /// position of the call. `None` without a file.
    pub fn position(&self) -> Option<String> {
        if let Some(copy) = &self.inlined_copy {
            return position(copy.file.as_deref(), copy.line);
        }
        let of_loop = self.of_loop.as_ref().and_then(|of| of.lines());
        of_loop.or_else(|| position(self.file.as_deref(), self.line))
    }
}

/// True for zero.
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}
