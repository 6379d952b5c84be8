//! Profiles in the formats of other tools.

mod folded;
#[cfg(test)]
mod tests;

pub use folded::to_folded;

use crate::profile::Profile;
use std::fmt;
use std::io::{self, Write};

/// Why a profile could not be exported.
#[derive(Debug)]
pub enum ExportError {
    /// The profile does not have this metric; it has those.
    NoSuchMetric(String, Vec<String>),
    /// The output could not be written.
    Write(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchMetric(metric, have) => {
                write!(
                    f,
                    "the profile has no metric `{metric}`, only {}",
                    have.join(", ")
                )
            }
            Self::Write(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<io::Error> for ExportError {
    fn from(cause: io::Error) -> Self {
        Self::Write(cause)
    }
}

/// Writes the profile itself, indented for people.
///
/// # Errors
/// What `out` gives.
pub fn to_json(profile: &Profile, out: &mut impl Write) -> Result<(), ExportError> {
    serde_json::to_writer_pretty(&mut *out, profile).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
