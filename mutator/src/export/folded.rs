//! Folded stacks, the input of flame graph tools: `root;…;caller;function VALUE`.

use super::ExportError;
use crate::profile::{COUNT, Frame, PathEntry, Profile, printable};
use std::io::Write;

/// Writes one line a path. The value of a timer is its share that is exclusive of nested probed
/// functions, because these have lines of their own: so the widths of a flame graph add up. With
/// `sites` each caller is `function+0xOFFSET`, otherwise call sites in one function look alike.
///
/// # Errors
/// The profile does not have `metric`, it is negative somewhere, or `out` fails.
pub fn to_folded(
    profile: &Profile,
    metric: &str,
    sites: bool,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    profile.metric(metric)?;
    if profile.paths.iter().any(|path| value(path, metric) < 0) {
        return Err(ExportError::Negative(metric.to_owned()));
    }
    let names: Vec<String> = profile
        .frames
        .iter()
        .map(|f| caller(profile, f, sites))
        .collect();
    for path in &profile.paths {
        if !path.complete {
            out.write_all(b"[callers unknown];")?;
        }
        for &frame in path.stack.iter().rev() {
            write!(out, "{};", names[frame])?;
        }
        let function = element(&profile.functions[path.function].name);
        writeln!(out, "{function} {}", value(path, metric))?;
    }
    Ok(())
}

fn value(path: &PathEntry, metric: &str) -> i128 {
    if metric == COUNT {
        return path.metrics.count.into();
    }
    path.metrics
        .timers
        .get(metric)
        .map_or(0, |stats| stats.exclusive.unwrap_or(stats.sum))
}

fn caller(profile: &Profile, frame: &Frame, sites: bool) -> String {
    let name = element(&profile.frame_name(frame));
    match frame.offset {
        Some(offset) if sites => format!("{name}+{offset:#x}"),
        _ => name,
    }
}

/// A name without what separates the elements and the lines of the format.
fn element(name: &str) -> String {
    printable(name).replace(';', ":")
}
