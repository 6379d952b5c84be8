//! `diff`.

use std::path::Path;
use std::process::ExitCode;

use super::output::{print, print_json};
use super::remarks::warn;
use super::target::load;
use crate::cli;
use crate::diff::{self, Diff};
use crate::error::Failure;
use crate::printable::Page;
use crate::profile::COUNT;
use crate::report::human;

const OPERATION: &str = "diff";

/// The status where more has changed than may: 1 and 2 say that it could not be told.
const EXCEEDED: u8 = 3;

/// Compares two profiles.
pub(super) fn diff(old: &Path, new: &Path, options: cli::Diff) -> Result<ExitCode, Failure> {
    let (before, after) = (load(OPERATION, old)?, load(OPERATION, new)?);
    let first = after.timers().find(|m| before.metric(&m.name).is_ok());
    let metric = match &options.metric {
        Some(metric) => metric.as_str(),
        None => first.map_or(COUNT, |m| &m.name),
    };
    for (profile, path) in [(&before, old), (&after, new)] {
        let missing = |e| Failure::new(OPERATION, path.display(), e).usage();
        profile.metric(metric).map_err(missing)?;
    }
    let diff = Diff::of(&before, &after, metric);
    if options.json {
        print_json(&diff::json(&diff))?;
    } else if !options.quiet {
        let mut text = Vec::new();
        let limit = Some(options.limit).filter(|&n| n > 0);
        // Writing to memory does not fail.
        let _ = diff::text(&diff, limit, &mut text);
        print(&Page::of(&String::from_utf8_lossy(&text)))?;
    }
    let Some(threshold) = options.threshold else {
        return Ok(ExitCode::SUCCESS);
    };
    match diff.worse(threshold) {
        0 => Ok(ExitCode::SUCCESS),
        worse => {
            let paths = human::count(worse as u64, "path");
            let by = human::percent(threshold);
            warn(&format!("{OPERATION}: {paths} worse by {by} or more"));
            Ok(ExitCode::from(EXCEEDED))
        }
    }
}
