//! Profiles in the formats of other tools, as docs/exports.md says: one module a format, on the same stacks and weights.

mod callgrind;
mod csv;
mod firefox;
mod flamegraph;
mod folded;
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
pub use hatchet::to_hatchet;
pub use html::to_html;
pub use pprof::proto as pprof_format;
pub use pprof::{to_pprof, to_pprof_message};
pub use speedscope::to_speedscope;
pub use tau::to_tau;

use crate::profile::{COUNT, NoSuchMetric, Profile};
use std::fmt;
use std::io::{self, Write};

/// A format that profiles are written in.
pub struct Format {
    /// As on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// True if it can show the changes since another profile.
    pub takes_baseline: bool,
    /// True if it can have source lines.
    pub takes_sources: bool,
    /// How it is written.
    pub writes: Writes,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// How a format is written.
pub enum Writes {
    /// As one file.
    File(fn(&Profile, &Asked<'_>, &mut Vec<u8>) -> Result<(), ExportError>),
    /// As a folder of files, which the last argument opens by name.
    Folder(fn(&Profile, &Asked<'_>, OpenFile<'_>) -> Result<(), ExportError>),
}

/// Opens a file of a folder.
pub type OpenFile<'f> = &'f mut dyn FnMut(&str) -> io::Result<Box<dyn Write>>;

/// What is asked of an export.
#[derive(Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The metric; none for all where the format has room for several.
    pub metric: Option<&'a str>,
    /// Callers are named as function+0xOFFSET.
    pub sites: bool,
    /// The profile to compare with, where the format takes one.
    pub baseline: Option<&'a Profile>,
    /// Source lines are included, where the format takes them.
    pub sources: bool,
}

impl<'a> Asked<'a> {
    /// The metric of a format that has room for one: the first that is not the count.
    fn one(&self, profile: &'a Profile) -> &'a str {
        let first = || profile.timers().next().map_or(COUNT, |metric| &metric.name);
        self.metric.unwrap_or_else(first)
    }
}

/// A format of one file with no options of its own.
const fn file(
    name: &'static str,
    about: &'static str,
    write: fn(&Profile, &Asked<'_>, &mut Vec<u8>) -> Result<(), ExportError>,
) -> Format {
    Format {
        name,
        about,
        takes_baseline: false,
        takes_sources: false,
        writes: Writes::File(write),
    }
}

/// All formats, in the order in which users see them.
pub static FORMATS: [Format; 11] = [
    file(
        "folded",
        "One line a path: root;…;caller;function VALUE",
        |p, asked, out| to_folded(p, asked.one(p), asked.sites, out),
    ),
    Format {
        takes_baseline: true,
        ..file("flamegraph", "A flame graph, SVG", |p, asked, out| {
            to_flamegraph(p, asked.baseline, asked.one(p), asked.sites, out)
        })
    },
    file("speedscope", "For speedscope.app", |p, asked, out| {
        to_speedscope(p, asked.metric, asked.sites, out)
    }),
    file(
        "pprof",
        "For go tool pprof and other readers of its gzip-compressed protobuf",
        |p, asked, out| to_pprof(p, asked.metric, asked.sites, out),
    ),
    file(
        "callgrind",
        "For callgrind_annotate and KCachegrind",
        |p, asked, out| to_callgrind(p, asked.metric, asked.sites, out),
    ),
    file("firefox", "For profiler.firefox.com", |p, asked, out| {
        to_firefox(p, asked.one(p), asked.sites, out)
    }),
    file(
        "csv",
        "One line for each path with all its figures",
        |p, asked, out| to_csv(p, asked.metric, asked.sites, out),
    ),
    file(
        "hatchet",
        "For Hatchet's GraphFrame.from_literal, JSON",
        |p, asked, out| to_hatchet(p, asked.metric, asked.sites, out),
    ),
    Format {
        name: "tau",
        about: "A folder of profile.N.C.T, for ParaProf, PerfExplorer and Hatchet",
        takes_baseline: false,
        takes_sources: false,
        writes: Writes::Folder(|p, asked, open| to_tau(p, asked.metric, asked.sites, open)),
    },
    Format {
        takes_sources: true,
        ..file(
            "html",
            "A page for a browser: flame graph, tables, histograms; one file that needs no network",
            |p, asked, out| to_html(p, asked.metric, asked.sites, asked.sources, out),
        )
    },
    file("json", "The profile itself", |p, _, out| to_json(p, out)),
];

/// The format of a name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

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
