//! Profiles in the formats of other tools, as docs/exports.md says: one module a format, on the same stacks and weights.

mod callgrind;
mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod formats;
mod hatchet;
mod html;
mod model;
mod notes;
mod pprof;
mod shade;
mod speedscope;
mod tau;
#[cfg(test)]
mod tests;
mod tree;

pub use callgrind::to_callgrind;
pub use csv::to_csv;
pub use firefox::to_firefox;
pub use flamegraph::to_flamegraph;
pub use folded::to_folded;
pub use formats::{Asked, FORMATS, Format, OpenFile, Writes, format};
pub use hatchet::to_hatchet;
pub use html::to_html;
pub use pprof::proto as pprof_format;
pub use pprof::{to_pprof, to_pprof_message};
pub use speedscope::to_speedscope;
pub use tau::to_tau;

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
    /// A number of the metric, or their sum, has more than the 64 bits that the format has room for.
    TooLarge(String),
    /// The output could not be written.
    Write(io::Error),
}

impl ExportError {
    /// What a user can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Negative(_) => {
                Some("--metric names another metric; csv, hatchet and pprof hold negative numbers")
            }
            Self::TooLarge(_) => {
                Some("--metric names another metric; csv and hatchet hold numbers of any size")
            }
            Self::Metric(_) | Self::Write(_) => None,
        }
    }
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
            Self::TooLarge(metric) => {
                write!(
                    f,
                    "`{metric}` needs more than 64 bits, and the format has no more"
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
