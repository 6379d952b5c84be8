//! Why profiles cannot be added up.

use std::fmt;

/// Why two profiles do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// They measure by one name in different units.
    Units {
        /// The metric.
        metric: String,
        /// The unit of those so far.
        known: String,
        /// The unit of this one.
        other: String,
    },
    /// They are of one session: its calls would count twice.
    Twice {
        /// The process.
        pid: u32,
        /// Its machine.
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
                "its `{metric}` is in `{other}`, that of the others in `{known}`"
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
