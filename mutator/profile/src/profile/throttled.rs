//! Functions that `--max-overhead` measures less.

use serde::{Deserialize, Serialize};

/// How a function is throttled: measuring it in full took too much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Throttling {
    /// Its calls are counted and not timed.
    Counted,
    /// Its probes are out: nothing is known about its later calls.
    Out,
}

/// A function that is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttled {
    /// The number of its calls that were counted and not timed. `None` if its probes are out: the
    /// number is not known.
    pub calls_not_timed: Option<u64>,
    /// When it came into this state, in nanoseconds since the session's start. In a sum of
    /// profiles, the earliest such time.
    pub since_ns: u64,
    /// Its state. In a sum of profiles, [`Throttling::Out`] if it is out in any of them.
    pub how: Throttling,
}

impl Throttled {
    /// Adds the state of the function in another profile of a sum, in which it is throttled too.
    pub fn add(&mut self, other: Self) {
        let calls = self.calls_not_timed.zip(other.calls_not_timed);
        self.calls_not_timed = calls.map(|(a, b)| a.saturating_add(b));
        self.since_ns = self.since_ns.min(other.since_ns);
        self.how = self.how.max(other.how);
    }
}
