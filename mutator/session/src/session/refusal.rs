//! Why a function or a point is refused.

use std::fmt;

use patcher::plan::RefuseReason;

/// Why a function or a point is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be patched.
    Reason(RefuseReason),
    /// A value that is asked for cannot be read. This is the cause, for users.
    Value(String),
}

/// The names of refused functions and points, with the reason of each.
pub type Refused = Vec<(String, Refusal)>;

impl Refusal {
    /// True if it is refused for this reason.
    pub(super) fn is(&self, reason: RefuseReason) -> bool {
        *self == Self::Reason(reason)
    }
}

impl From<RefuseReason> for Refusal {
    fn from(reason: RefuseReason) -> Self {
        Self::Reason(reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reason(reason) => reason.fmt(f),
            Self::Value(cause) => f.write_str(cause),
        }
    }
}
