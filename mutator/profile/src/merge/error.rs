//! Errors of merging.

use std::fmt;

/// Two profiles cannot be added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// The profiles use different units for one metric.
    Units {
        /// The metric.
        metric: String,
        /// The metric's unit in the profiles added before.
        known: String,
        /// The metric's unit in the profile that cannot be added.
        other: String,
    },
    /// The profiles are of the same session, whose calls would count twice.
    Twice {
        /// The id of the process that was measured in the session.
        pid: u32,
        /// The name of the machine that the process ran on.
        host: String,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units {
                metric,
                known,
                other,
            } => write!(
                f,
                "its `{metric}` is in `{other}`, but the other profiles have it in `{known}`"
            ),
            Self::Twice { pid, host } => {
                write!(
                    f,
                    "the same session of process {pid} on {host} was in another file"
                )
            }
        }
    }
}

impl std::error::Error for MergeError {}
