//! Folded stacks, the input of flame graph tools: `root;…;caller;function VALUE`.

use super::ExportError;
use super::model::{Model, Naming, widths};
use crate::profile::Profile;
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
    let widths = widths(profile, metric)?;
    let naming = Naming {
        sites,
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
