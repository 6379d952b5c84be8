//! `report` and `export`.

use std::path::Path;

use super::output::print;
use super::watch::destination;
use crate::cli::{self, Format};
use crate::error::Failure;
use crate::printable::Page;
use crate::profile::{COUNT, Profile};
use crate::{export, report};

fn load(operation: &str, file: &Path) -> Result<Profile, Failure> {
    Profile::load(file).map_err(|e| Failure::of(operation, e))
}

/// Prints a profile.
pub(super) fn report(file: &Path, options: cli::Report) -> Result<(), Failure> {
    let profile = load("report", file)?;
    if let Some(metric) = &options.metric {
        let missing = |e| Failure::new("report", file.display(), e);
        profile.metric(metric).map_err(missing)?;
    }
    let mut text = Vec::new();
    let options = report::Options {
        metric: options.metric,
        paths: options.paths,
        depth: options.depth,
        histogram: options.histogram,
    };
    // Writing to memory does not fail.
    let _ = report::text(&profile, &options, &mut text);
    print(&Page::of(&String::from_utf8_lossy(&text)))
}

/// Writes a profile in another format.
pub(super) fn export(
    file: &Path,
    to: Format,
    output: &Path,
    metric: Option<&str>,
    sites: bool,
) -> Result<(), Failure> {
    let into = destination(output)?;
    let profile = load("export", file)?;
    let first = profile.timers().next().map_or(COUNT, |m| &m.name);
    let metric = metric.unwrap_or(first);
    let mut text = Vec::new();
    let written = match to {
        Format::Json => export::to_json(&profile, &mut text),
        Format::Folded => export::to_folded(&profile, metric, sites, &mut text),
    };
    written.map_err(|e| Failure::new("export", file.display(), e))?;
    into.write(|out| out.write_all(&text))
        .map_err(|e| Failure::new("write", output.display(), crate::error::io_text(&e)))
}
