//! Folded stacks, the input of flame graph tools: `root;…;caller;function VALUE`.

use super::ExportError;
use super::model::{Callers, Model, Naming, widths};
use crate::profile::Profile;
use std::io::Write;

/// Writes one line for each path. The value of a timer excludes nested probed functions, which have
/// lines of their own, so that the widths of a flame graph add up. Without
/// [`Callers::sites`], the call sites of a function look alike.
///
/// # Errors
/// The profile does not have `metric`, the metric is negative on some path or exceeds 64 bits, or
/// `out` fails.
pub fn to_folded(
    profile: &Profile,
    metric: &str,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    profile.metric(metric)?;
    let widths = widths(profile, metric)?;
    let naming = Naming {
        callers,
        inlined: false,
    };
    let model = Model::of(profile, naming);
    // `;` separates the elements of the format.
    let names: Vec<String> = model.names.iter().map(|n| n.replace(';', ":")).collect();
    for (path, width) in profile.paths.iter().zip(widths) {
        let stack: Vec<&str> = model.stack(path).iter().map(|&n| &*names[n]).collect();
        writeln!(out, "{} {width}", stack.join(";"))?;
    }
    Ok(())
}
