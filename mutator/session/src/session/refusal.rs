//! Reasons for refusing a function or a point.

use std::fmt;

use patcher::plan::RefuseReason;

/// Why a function or a point is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The function or point cannot be patched.
    Reason(RefuseReason),
    /// A requested value cannot be read. Contains the cause, for users.
    Value(String),
    /// The edges of the function cannot be counted. Contains the cause, for users.
    Inside(String),
}

/// The names of refused functions and points, each with its reason.
pub type Refused = Vec<(String, Refusal)>;

impl Refusal {
    /// True if this is the refusal for `reason`.
    pub fn is(&self, reason: RefuseReason) -> bool {
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
            Self::Value(cause) | Self::Inside(cause) => f.write_str(cause),
        }
    }
}
