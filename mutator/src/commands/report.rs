//! `report`: prints a profile as text or JSON.

use std::path::Path;

use patcher::select::Pattern;

use super::measure;
use super::output::{print_by, print_json};
use super::target::load;
use crate::cli::{self, Sort};
use crate::failure::Failure;
use ipath_profile::report::{self, By, Filter, Options};

const OPERATION: &str = "report";

/// Prints a profile, or the selected part of it.
pub(super) fn report(file: &Path, asked: cli::Report) -> Result<(), Failure> {
    let of_file = |e: &dyn std::fmt::Display| Failure::new(OPERATION, file.display(), e);
    let filter = Filter {
        functions: patterns(&asked.function)?,
        under: patterns(&asked.under)?,
        threads: asked.thread,
        phases: asked.phase,
        processes: asked.process,
    };
    let profile = load(OPERATION, file)?;
    if let Some(metric) = &asked.metric {
        let metric = profile.metric(metric);
        metric.map_err(|e| of_file(&e).usage())?;
    }
    let (json, tree) = (asked.json, asked.tree);
    let all = |n: usize| (n > 0).then_some(n);
    let options = Options {
        metric: asked.metric,
        by: match asked.sort {
            Sort::Total => By::Total,
            Sort::Calls => By::Calls,
            Sort::Mean => By::Mean,
            Sort::P99 => By::P99,
            Sort::Max => By::Max,
            Sort::Name => By::Name,
        },
        limit: all(asked.limit),
        paths: asked.paths,
        processes: all(asked.processes),
        depth: all(asked.depth),
        min_share: asked.min_share.unwrap_or(0.0),
        histogram: asked.histogram,
        quiet: asked.quiet,
        verbose: asked.verbose,
        all_by: "--limit 0 shows all",
    };
    let shown = filter.of(&profile).map_err(|e| of_file(&e))?;
    if json {
        return print_json(&report::json(&profile, &shown, &options));
    }
    print_by(|out| {
        if tree {
            report::tree(&profile, &shown, &options, out)
        } else {
            report::selected(&profile, &shown, &options, out)
        }
    })
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    measure::patterns(OPERATION, texts)
}
