//! The table of formats.

use std::fmt;
use std::io::{self, Write};

use super::annotate::to_annotate;
use super::callgrind::to_callgrind;
use super::chrome::to_chrome;
use super::code::Code;
use super::csv::to_csv;
use super::firefox::to_firefox;
use super::flamegraph::to_flamegraph;
use super::folded::to_folded;
use super::hatchet::to_hatchet;
use super::html::to_html;
use super::lcov::to_lcov;
use super::pprof::to_pprof;
use super::speedscope::to_speedscope;
use super::tau::to_tau;
use super::{Callers, ExportError, to_json};
use crate::profile::{COUNT, Profile};

/// A file format for profiles.
pub struct Format {
    /// The format's name on the command line.
    pub name: &'static str,
    /// A one-line description of the format.
    pub about: &'static str,
    /// True if the format can show the changes since another profile.
    pub takes_baseline: bool,
    /// True if the format can show the loops around calls as callers.
    pub takes_loops: bool,
    /// True if the format can contain source lines.
    pub takes_sources: bool,
    /// True if the format can contain instructions.
    pub takes_code: bool,
    /// The function that writes the format.
    pub writes: Writes,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A function that writes a format.
pub enum Writes {
    /// Appends the content of one file to the bytes.
    File(fn(&Profile, &Asked<'_>, &mut Vec<u8>) -> Result<(), ExportError>),
    /// Writes a folder of files, opened by name with the last argument.
    Folder(fn(&Profile, &Asked<'_>, OpenFile<'_>) -> Result<(), ExportError>),
}

/// Creates the file with this name in the folder.
pub type OpenFile<'f> = &'f mut dyn FnMut(&str) -> io::Result<Box<dyn Write>>;

/// The options of an export.
#[derive(Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The metric. `None` selects all metrics if the format has room for several, else the first
    /// metric that is not `count`.
    pub metric: Option<&'a str>,
    /// The callers. Loops are only for formats that take them.
    pub callers: Callers,
    /// The profile to compare with, if the format supports it.
    pub baseline: Option<&'a Profile>,
    /// True to include source lines, if the format supports it.
    pub sources: bool,
    /// The instructions of the counted functions, if the format supports them.
    pub code: Option<&'a Code>,
}

impl<'a> Asked<'a> {
    /// The metric of a format with room for one: by default the first metric that is not `count`,
    /// or `count` if there is no other.
    fn one(&self, profile: &'a Profile) -> &'a str {
        let first = || profile.timers().next().map_or(COUNT, |metric| &metric.name);
        self.metric.unwrap_or_else(first)
    }
}

/// A format of one file, without options of its own.
const fn file(
    name: &'static str,
    about: &'static str,
    write: fn(&Profile, &Asked<'_>, &mut Vec<u8>) -> Result<(), ExportError>,
) -> Format {
    Format {
        name,
        about,
        takes_baseline: false,
        takes_loops: false,
        takes_sources: false,
        takes_code: false,
        writes: Writes::File(write),
    }
}

/// A format of one file with the names of callers.
const fn stacks(
    name: &'static str,
    about: &'static str,
    write: fn(&Profile, &Asked<'_>, &mut Vec<u8>) -> Result<(), ExportError>,
) -> Format {
    Format {
        takes_loops: true,
        ..file(name, about, write)
    }
}

/// The formats, in the order in which they are shown to users.
pub static FORMATS: [Format; 14] = [
    stacks(
        "folded",
        "One line a path: root;…;caller;function VALUE",
        |p, asked, out| to_folded(p, asked.one(p), asked.callers, out),
    ),
    Format {
        takes_baseline: true,
        ..stacks("flamegraph", "A flame graph, SVG", |p, asked, out| {
            to_flamegraph(p, asked.baseline, asked.one(p), asked.callers, out)
        })
    },
    stacks("speedscope", "For speedscope.app", |p, asked, out| {
        to_speedscope(p, asked.metric, asked.callers, out)
    }),
    Format {
        takes_code: true,
        ..stacks(
            "pprof",
            "For go tool pprof and other readers of its gzip-compressed protobuf",
            |p, asked, out| to_pprof(p, asked.metric, asked.callers, asked.code, out),
        )
    },
    Format {
        takes_code: true,
        ..file(
            "callgrind",
            "For callgrind_annotate and KCachegrind",
            |p, asked, out| to_callgrind(p, asked.metric, asked.callers, asked.code, out),
        )
    },
    stacks(
        "chrome",
        "The last calls (--trace) in the order of time, for Perfetto and Chrome's tracing",
        |p, asked, out| to_chrome(p, asked.callers, out),
    ),
    stacks("firefox", "For profiler.firefox.com", |p, asked, out| {
        to_firefox(p, asked.one(p), asked.callers, out)
    }),
    stacks(
        "csv",
        "One line for each path with all its figures",
        |p, asked, out| to_csv(p, asked.metric, asked.callers, out),
    ),
    stacks(
        "hatchet",
        "For Hatchet's GraphFrame.from_literal, JSON",
        |p, asked, out| to_hatchet(p, asked.metric, asked.callers, out),
    ),
    Format {
        name: "tau",
        about: "A folder of profile.N.C.T, for ParaProf, PerfExplorer and Hatchet",
        takes_baseline: false,
        takes_loops: true,
        takes_sources: false,
        takes_code: false,
        writes: Writes::Folder(|p, asked, open| to_tau(p, asked.metric, asked.callers, open)),
    },
    Format {
        takes_sources: true,
        takes_code: true,
        ..stacks(
            "html",
            "A page for a browser: flame graph, tables, histograms; one file that needs no network",
            |p, asked, out| {
                to_html(
                    p,
                    asked.metric,
                    asked.callers,
                    asked.sources,
                    asked.code,
                    out,
                )
            },
        )
    },
    Format {
        takes_code: true,
        ..file(
            "annotate",
            "Counted functions as text: source lines and instructions with counts",
            |p, asked, out| to_annotate(p, asked.code, out),
        )
    },
    file(
        "lcov",
        "For genhtml and other readers of coverage: counts of source lines and branches",
        |p, _, out| to_lcov(p, out),
    ),
    // The profile always has the loops.
    stacks("json", "The profile itself", |p, _, out| to_json(p, out)),
];

/// The format with this name. `None` if there is none.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}
