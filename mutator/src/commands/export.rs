//! `export`: converts a profile to the format of another tool.

mod code;

use std::path::Path;

use super::remarks::warn;
use super::target::load;
use super::watch::destination;
use crate::cli;
use crate::failure::Failure;
use ipath_base::destination::Folder;
use ipath_base::hint::{Cause, Hint, hint};
use ipath_profile::export::{Asked, Callers, ExportError, FORMATS, Format, Writes};

/// Converts a profile to another format.
pub(super) fn export(file: &Path, options: &cli::Export) -> Result<(), Failure> {
    let cli::Export {
        to,
        output,
        metric,
        sites,
        loops,
        baseline,
        sources,
    } = options;
    let taking = |takes: fn(&Format) -> bool| {
        let names = FORMATS.iter().filter(|f| takes(f)).map(|f| f.name);
        hint!("use --to {}", Cause(&names.collect::<Vec<_>>().join(", ")))
    };
    if baseline.is_some() && !to.takes_baseline {
        let cause = "only a flame graph can be compared with a baseline";
        let failure = Failure::new("export", "--baseline", cause);
        return Err(failure.hint(taking(|format| format.takes_baseline)));
    }
    if *loops && !to.takes_loops {
        let cause = format!(
            "{} cannot show loops between the functions of a path",
            to.name
        );
        let failure = Failure::new("export", "--loops", cause);
        return Err(failure.hint(taking(|format| format.takes_loops)));
    }
    if *sources && !to.takes_sources {
        let cause = "it is only for an HTML page";
        let failure = Failure::new("export", "--sources", cause);
        return Err(failure.hint(taking(|format| format.takes_sources)));
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
    let asked = Asked {
        metric: metric.as_deref(),
        callers: Callers {
            sites: *sites,
            loops: *loops,
        },
        baseline: None,
        sources: *sources,
        code: None,
    };
    let write = match &to.writes {
        Writes::File(write) => write,
        Writes::Folder(write) => {
            let into = Folder::of(output).map_err(unwritten)?;
            let profile = load("export", file)?;
            let mut into = into.begin().map_err(unwritten)?;
            write(&profile, &asked, &mut |name| Ok(Box::new(into.file(name)?))).map_err(failed)?;
            return into.finish().map_err(unwritten);
        }
    };
    let into = destination(output)?;
    let profile = load("export", file)?;
    let baseline = baseline.as_deref().map(|file| load("export", file));
    let baseline = baseline.transpose()?;
    let code = to.takes_code.then(|| code::code_of(&profile));
    let asked = Asked {
        baseline: baseline.as_ref(),
        code: code.as_ref(),
        ..asked
    };
    let mut text = Vec::new();
    let written = write(&profile, &asked, &mut text);
    written.map_err(failed)?;
    if to.name == "lcov" {
        // The format has no place for it.
        for inside in &profile.inside {
            let name = &profile.functions[inside.function].name;
            let doubt = inside.doubt();
            doubt
                .iter()
                .for_each(|doubt| warn(&format!("{name}: counts {doubt}")));
        }
    }
    into.write(|out| out.write_all(&text)).map_err(unwritten)
}
