//! Options for existing profiles: printing, comparison and conversion.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use ipath_profile::export::{self, FORMATS, Format};

use super::parse::{growth, share};

/// The part of a profile that is printed.
#[derive(Debug, Args)]
#[group(id = "of_report")]
pub struct Report {
    /// Maximum number of functions and of paths; 0 for all
    #[arg(long, value_name = "N", default_value_t = ipath_profile::report::LIMIT)]
    pub limit: usize,
    /// Sort key of functions and paths, the largest first
    #[arg(long, value_name = "BY", default_value = "total")]
    pub sort: Sort,
    /// Metric to sort by and to show first [default: the first after count]
    #[arg(long)]
    pub metric: Option<String>,
    /// Minimum share of its function for a path to be printed
    #[arg(long, value_name = "P%", value_parser = share)]
    pub min_share: Option<f64>,
    /// Only functions of these names, as for attach -f
    #[arg(long, value_name = "PATTERN")]
    pub function: Vec<String>,
    /// Only paths through a function of this name; if repeated, through these functions in order
    /// from the root
    #[arg(long, value_name = "PATTERN")]
    pub under: Vec<String>,
    /// Only paths of threads of this name or id, if threads are kept apart
    #[arg(long, value_name = "NAME|TID")]
    pub thread: Vec<String>,
    /// Only paths of phases of this name, if paths are kept apart by phase
    #[arg(long, value_name = "NAME")]
    pub phase: Vec<String>,
    /// Only paths of these processes, by id, program or rank (`rank 3`), if processes are kept
    /// apart
    #[arg(long, value_name = "PID|PROGRAM|RANK")]
    pub process: Vec<String>,
    /// Print the callers of each function as a tree, equal ones folded, each with its share of the
    /// calls and of the metric
    #[arg(long, conflicts_with_all = ["histogram", "json"])]
    pub tree: bool,
    /// Print the distribution of each metric's values, per function
    #[arg(long, conflicts_with = "json")]
    pub histogram: bool,
    /// Maximum number of paths of each function
    #[arg(long, value_name = "N")]
    pub paths: Option<usize>,
    /// Maximum number of processes of each function, or of programs if there are several, the
    /// costliest first; 0 for all
    #[arg(long, value_name = "N", default_value_t = ipath_profile::report::PROCESSES)]
    pub processes: usize,
    /// Maximum number of callers of each path, from the innermost; 0 for all
    #[arg(long, value_name = "K", default_value_t = ipath_profile::report::DEPTH)]
    pub depth: usize,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only the tables and the inexact figures
    #[arg(short, long)]
    pub quiet: bool,
    /// Print whole names, each frame on its own line, and how each function is patched
    #[arg(short, long)]
    pub verbose: bool,
}

/// Sort keys of functions and paths in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Sum of the metric
    Total,
    /// Calls
    Calls,
    /// Mean of the metric
    Mean,
    /// 99th percentile of the metric
    P99,
    /// Largest value of the metric
    Max,
    /// Name of the function, from A to Z
    Name,
}

/// Options of a comparison.
#[derive(Debug, Args)]
#[group(id = "of_diff")]
pub struct Diff {
    /// Metric whose mean is compared; for count, the number of calls [default: the first after
    /// count]
    #[arg(long)]
    pub metric: Option<String>,
    /// Compare this phase of the old profiles
    #[arg(long, value_name = "NAME")]
    pub old_phase: Option<String>,
    /// Compare this phase of the new profiles, which may be the old ones
    #[arg(long, value_name = "NAME")]
    pub new_phase: Option<String>,
    /// Exit with status 3 if the cost per call of a path grew by this much, significantly; with
    /// --metric count, if its number of calls did
    #[arg(long, value_name = "P%", value_parser = growth)]
    pub threshold: Option<f64>,
    /// Maximum number of paths; 0 for all
    #[arg(long, value_name = "N", default_value_t = ipath_profile::report::LIMIT)]
    pub limit: usize,
    /// Print all paths as JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json", requires = "threshold")]
    pub quiet: bool,
}

/// The parser for the name of an export format.
fn format() -> impl TypedValueParser<Value = &'static Format> {
    let value = |format: &Format| PossibleValue::new(format.name).help(format.about);
    PossibleValuesParser::new(FORMATS.iter().map(value))
        .map(|name| export::format(&name).expect("one of the possible values"))
}

/// How a profile is converted.
#[derive(Debug, Args)]
#[group(id = "of_export")]
pub struct Export {
    /// Format
    #[arg(long, value_parser = format())]
    pub to: &'static Format,
    /// File to write, for tau a folder; - is standard output
    #[arg(short, long)]
    pub output: PathBuf,
    /// Metric to show [default: all if the format has room for several, else the first that is not
    /// count]
    #[arg(long)]
    pub metric: Option<String>,
    /// Name callers as function+0xOFFSET
    #[arg(long)]
    pub sites: bool,
    /// Show the loops around each call, between the caller and the callee
    #[arg(long)]
    pub loops: bool,
    /// Profile to compare with: the colors of the flame graph show the changes since
    #[arg(long, value_name = "OLD")]
    pub baseline: Option<PathBuf>,
    /// Include the source lines around each call and of counted functions in the page, from the
    /// files that the profile names
    #[arg(long)]
    pub sources: bool,
}
