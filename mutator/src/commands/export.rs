//! `export`.

use std::path::Path;

use super::target::load;
use super::watch::destination;
use crate::cli::{self, Format};
use ipath_base::destination::Folder;
use ipath_base::error::Failure;
use ipath_base::hint::Hint;
use ipath_profile::COUNT;
use ipath_profile::export::{self, ExportError};

/// Writes a profile in another format.
pub(super) fn export(file: &Path, options: &cli::Export) -> Result<(), Failure> {
    let cli::Export {
        to,
        output,
        metric,
        sites,
        baseline,
        sources,
    } = options;
    let (sites, metric) = (*sites, metric.as_deref());
    if baseline.is_some() && *to != Format::Flamegraph {
        let cause = "only a flame graph is compared with a baseline";
        return Err(Failure::new("export", "--baseline", cause).hint("use --to flamegraph"));
    }
    if *sources && *to != Format::Html {
        let cause = "only a page has source lines";
        return Err(Failure::new("export", "--sources", cause).hint("use --to html"));
    }
    let failed = |e: ExportError| {
        let failure = Failure::new("export", file.display(), &e);
        let failure = failure.maybe_hint(e.hint().map(Hint::from));
        match e {
            ExportError::Metric(_) => failure.usage(),
            _ => failure,
        }
    };
    let unwritten = |e| Failure::new("write", output.display(), ipath_base::error::io_text(&e));
    if *to == Format::Tau {
        let into = Folder::of(output).map_err(unwritten)?;
        let profile = load("export", file)?;
        let mut into = into.begin().map_err(unwritten)?;
        export::to_tau(&profile, metric, sites, |name| into.file(name)).map_err(failed)?;
        return into.finish().map_err(unwritten);
    }
    let into = destination(output)?;
    let profile = load("export", file)?;
    let first = profile.timers().next().map_or(COUNT, |m| &m.name);
    let one = metric.unwrap_or(first);
    let mut text = Vec::new();
    let written = match to {
        // Has been written above.
        Format::Tau => Ok(()),
        Format::Json => export::to_json(&profile, &mut text),
        Format::Folded => export::to_folded(&profile, one, sites, &mut text),
        Format::Flamegraph => {
            let baseline = baseline.as_deref().map(|file| load("export", file));
            let baseline = baseline.transpose()?;
            export::to_flamegraph(&profile, baseline.as_ref(), one, sites, &mut text)
        }
        Format::Speedscope => export::to_speedscope(&profile, metric, sites, &mut text),
        Format::Pprof => export::to_pprof(&profile, metric, sites, &mut text),
        Format::Callgrind => export::to_callgrind(&profile, metric, sites, &mut text),
        Format::Firefox => export::to_firefox(&profile, one, sites, &mut text),
        Format::Csv => export::to_csv(&profile, metric, sites, &mut text),
        Format::Hatchet => export::to_hatchet(&profile, metric, sites, &mut text),
        Format::Html => export::to_html(&profile, metric, sites, *sources, &mut text),
    };
    written.map_err(failed)?;
    into.write(|out| out.write_all(&text)).map_err(unwritten)
}
