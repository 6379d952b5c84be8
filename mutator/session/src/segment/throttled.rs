//! Functions that are measured less because measuring them took too much time.

use ipath_profile::{Throttled, Throttling};
use serde::{Deserialize, Serialize};

/// A function that `--max-overhead` has throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottledDoc {
    /// When it came into this state, in nanoseconds since the session's start.
    pub since_ns: u64,
    /// The state.
    pub how: Throttling,
}

impl ThrottledDoc {
    /// The state in the profile, before its calls are counted.
    pub fn in_profile(self) -> Throttled {
        Throttled {
            calls_not_timed: (self.how == Throttling::Counted).then_some(0),
            since_ns: self.since_ns,
            how: self.how,
        }
    }
}
