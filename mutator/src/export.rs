//! Profiles in the formats of other tools.

mod folded;
#[cfg(test)]
mod tests;

pub use folded::to_folded;

use crate::profile::{NoSuchMetric, Profile};
use std::fmt;
use std::io::{self, Write};

/// Why a profile could not be exported.
#[derive(Debug)]
pub enum ExportError {
    /// The profile does not have the metric.
    Metric(NoSuchMetric),
    /// The sum of the metric is below 0 on some path, which the format cannot say.
    Negative(String),
    /// The output could not be written.
    Write(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metric(cause) => cause.fmt(f),
            Self::Negative(metric) => {
                write!(
                    f,
                    "`{metric}` is negative on some paths, and widths are not"
                )
            }
            Self::Write(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<NoSuchMetric> for ExportError {
    fn from(cause: NoSuchMetric) -> Self {
        Self::Metric(cause)
    }
}

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
