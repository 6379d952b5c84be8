//! Estimates of the cost of calls, by their kind. Their sum is scaled to the runtime's own account,
//! so only the ratios between functions matter if that is known.

/// A call that is counted, in nanoseconds, without its frames.
const COUNTED: f64 = 25.0;
/// A call that is timed, in nanoseconds, without its frames.
const TIMED: f64 = 60.0;
/// A frame of a known path, in nanoseconds.
const FRAME: f64 = 1.0;
/// A new path: the walk, its nodes and its record, in nanoseconds.
const PATH: f64 = 3000.0;
/// A call whose path has no room, in nanoseconds: each walks the stack.
const UNPATHED: f64 = 400.0;
/// The part of a call that the runtime's account does not contain, in nanoseconds: the jumps into
/// the trampoline and back, and the caches and predictions that they displace. 1 to 5 ns a probe.
const UNSEEN: f64 = 3.0;

/// The largest ratio of the runtime's account to the estimate. Beyond it, a thread lost its
/// processor while it measured.
const MOST: f64 = 8.0;

/// The calls of a function between two looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) is_timed: bool,
    pub(super) calls: f64,
    pub(super) frames: f64,
    /// The number of new paths.
    pub(super) paths: f64,
    pub(super) unpathed: f64,
}

impl Cost {
    /// The estimated cost of the calls as they are measured, in nanoseconds.
    pub(super) fn now(&self) -> f64 {
        let timing = if self.is_timed { TIMED - COUNTED } else { 0.0 };
        self.counted() + timing * self.calls
    }

    /// The estimated cost of the calls if they were only counted, in nanoseconds.
    pub(super) fn counted(&self) -> f64 {
        COUNTED * self.calls + FRAME * self.frames + PATH * self.paths + UNPATHED * self.unpathed
    }

    /// The cost that the runtime's account does not contain, in nanoseconds.
    pub(super) fn unseen(&self) -> f64 {
        let probes = if self.is_timed { 2.0 } else { 1.0 };
        probes * self.unseen_counted()
    }

    /// [`Cost::unseen`] if the calls were only counted.
    pub(super) fn unseen_counted(&self) -> f64 {
        UNSEEN * self.calls
    }
}

/// The factor from estimates to costs. `measured` is the runtime's account and `estimate` the sum
/// of all estimates, in nanoseconds. 1 without an account: the runtime has not measured the cost of
/// its calls yet.
pub(super) fn scale(measured: f64, estimate: f64) -> f64 {
    if measured <= 0.0 || estimate <= 0.0 {
        return 1.0;
    }
    (measured / estimate).min(MOST)
}
