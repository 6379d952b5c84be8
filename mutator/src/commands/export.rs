//! `export`.

use std::path::Path;

use super::watch::destination;
use crate::cli::Format;
use crate::error::Failure;
use crate::export;
use crate::profile::{COUNT, Profile};

fn load(operation: &str, file: &Path) -> Result<Profile, Failure> {
    Profile::load(file).map_err(|e| Failure::of(operation, e))
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
