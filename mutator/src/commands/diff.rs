//! `diff`: compares profiles.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output::{print, print_json};
use super::remarks::warn;
use super::target::load;
use crate::cli;
use crate::failure::Failure;
use ipath_base::printable::Page;
use ipath_profile::diff::{self, Diff};
use ipath_profile::report::human;
use ipath_profile::{COUNT, Profile};

const OPERATION: &str = "diff";

/// The exit status if changes exceed the threshold. 1 and 2 are errors.
const EXCEEDED: u8 = 3;

/// Compares two profiles, or the profiles of several runs with the profiles of other runs. The exit
/// status is [`EXCEEDED`] if a path is worse by the threshold or more.
pub(super) fn diff(
    old: Vec<PathBuf>,
    new: Vec<PathBuf>,
    options: cli::Diff,
) -> Result<ExitCode, Failure> {
    let (old, new) = sides(old, new)?;
    let load_all = |files: &[PathBuf], phase: Option<&str>| -> Result<Vec<Profile>, Failure> {
        let load = |file: &PathBuf| {
            let mut profile = load(OPERATION, file)?;
            let kept = phase.map_or(Ok(()), |name| profile.keep_phase(name));
            kept.map_err(|e| Failure::new(OPERATION, file.display(), e))?;
            Ok(profile)
        };
        files.iter().map(load).collect()
    };
    let before = load_all(&old, options.old_phase.as_deref())?;
    let after = load_all(&new, options.new_phase.as_deref())?;
    let profiles = || after.iter().chain(&before);
    let has = |profile: &Profile, name: &str| profile.metric(name).is_ok();
    let first = after.iter().flat_map(Profile::timers);
    let mut first = first.filter(|m| profiles().all(|profile| has(profile, &m.name)));
    let metric = match &options.metric {
        Some(metric) => metric.as_str(),
        None => first.next().map_or(COUNT, |m| &m.name),
    };
    let is_known = profiles().any(|profile| has(profile, metric));
    for (profile, path) in before.iter().zip(&old).chain(after.iter().zip(&new)) {
        let missing = |e| {
            let failure = Failure::new(OPERATION, path.display(), e);
            if is_known {
                // The other runs contain the metric, so the run is wrong, not the command line.
                failure.hint(
                "measure this run again with this metric (-m), leave it out, or choose another --metric",
            )
            } else {
                failure.usage()
            }
        };
        profile.metric(metric).map_err(missing)?;
    }
    let diff = Diff::of_runs(before.iter().collect(), after.iter().collect(), metric);
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

/// The files of each side. Without `--` they are one old and one new file.
///
/// # Errors
/// There are not two files without `--`, or one is given twice on the same side.
fn sides(old: Vec<PathBuf>, new: Vec<PathBuf>) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    const USAGE: &str = "two profiles, or several runs a side: ipath diff OLD... -- NEW...";
    let (old, new) = match (<[PathBuf; 2]>::try_from(old), new.is_empty()) {
        (Ok([old, new]), true) => (vec![old], vec![new]),
        (Ok(old), false) => (old.into(), new),
        (Err(old), false) => (old, new),
        (Err(old), true) => {
            let given = human::count(old.len() as u64, "profile");
            let cause = format!("{given} without --");
            return Err(Failure::new(OPERATION, old[0].display(), cause)
                .hint(USAGE)
                .usage());
        }
    };
    for side in [&old, &new] {
        let twice = (1..)
            .zip(side)
            .find(|(next, file)| side[*next..].contains(file));
        if let Some((_, file)) = twice {
            let cause = "it is given twice on the same side";
            return Err(Failure::new(OPERATION, file.display(), cause).usage());
        }
    }
    Ok((old, new))
}
