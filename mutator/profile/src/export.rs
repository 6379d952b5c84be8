//! Profiles in the formats of other tools (docs/guide/exports.md). Each format is a module; all use
//! the same stacks and weights.

mod annotate;
mod annotated;
mod callgrind;
mod chrome;
mod code;
mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod formats;
mod hatchet;
mod html;
mod lcov;
mod model;
mod notes;
mod pprof;
mod shade;
mod speedscope;
mod tau;
#[cfg(test)]
mod tests;
mod texts;
mod tree;

pub use annotate::to_annotate;
pub use callgrind::to_callgrind;
pub use chrome::to_chrome;
pub use code::{Code, Instruction, Listing};
pub use csv::to_csv;
pub use firefox::to_firefox;
pub use flamegraph::to_flamegraph;
pub use folded::to_folded;
pub use formats::{Asked, FORMATS, Format, OpenFile, Writes, format};
pub use hatchet::to_hatchet;
pub use html::to_html;
pub use lcov::to_lcov;
pub use model::Callers;
pub use pprof::proto as pprof_format;
pub use pprof::{to_pprof, to_pprof_message};
pub use speedscope::to_speedscope;
pub use tau::to_tau;

use crate::profile::{NoSuchMetric, Profile};
use std::fmt;
use std::io::{self, Write};

/// A profile could not be exported.
#[derive(Debug)]
pub enum ExportError {
    /// The profile does not have the metric.
    Metric(NoSuchMetric),
    /// The sum of the metric is negative on some path, which the format cannot represent.
    Negative(String),
    /// A number of the metric, or their sum, does not fit the 64 bits of the format.
    TooLarge(String),
    /// The control flow of no function with source lines was counted, and the format has only
    /// these.
    NoLines,
    /// The control flow of no function was counted, and the format has only that.
    NoInside,
    /// No last calls were kept, and the format has only these.
    NoTrace,
    /// The output could not be written.
    Write(io::Error),
}

impl ExportError {
    /// Advice for the user on the error. `None` if there is none.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Negative(_) => {
                Some("--metric names another metric; csv, hatchet and pprof hold negative numbers")
            }
            Self::TooLarge(_) => {
                Some("--metric names another metric; csv and hatchet hold numbers of any size")
            }
            Self::NoInside => Some("ipath run --edges FUNCTION counts it"),
            Self::NoTrace => Some("ipath run --trace 1000 keeps the last calls of each function"),
            Self::Metric(_) | Self::NoLines | Self::Write(_) => None,
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
                    "`{metric}` is negative on some paths, but widths cannot be negative"
                )
            }
            Self::TooLarge(metric) => {
                write!(
                    f,
                    "`{metric}` needs more than 64 bits, but the format has only 64"
                )
            }
            Self::NoLines => f.write_str(
                "it has no counts of source lines: the control flow inside functions with debug \
                information was not counted",
            ),
            Self::NoInside => f.write_str("the control flow inside functions was not counted"),
            Self::NoTrace => f.write_str("it has no single calls in the order of time"),
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
/// Returns the errors of `out`.
pub fn to_json(profile: &Profile, out: &mut impl Write) -> Result<(), ExportError> {
    serde_json::to_writer_pretty(&mut *out, profile).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
