//! A list of trees as JSON, the input of `hatchet.GraphFrame.from_literal` in LLNL's Hatchet.

use super::ExportError;
use super::model::{Callers, Model, Naming, metrics, weight};
use super::tree::Tree;
use crate::profile::Profile;
use serde_json::json;
use std::io::Write;

/// Writes a tree of names. For `metric`, or for each metric, a node has its exclusive cost, and its
/// inclusive cost as `METRIC (inc)`.
///
/// # Errors
/// The profile does not have the metric, or `out` fails.
pub fn to_hatchet(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let asked = metrics(profile, metric)?;
    let model = Model::of(profile, Naming::by_line(callers));
    let tree = Tree::of(&model, profile.paths.iter(), asked.len(), |path, kind| {
        weight(path, &asked[kind].name)
    });
    let keys: Vec<_> = asked
        .iter()
        .map(|metric| (json!(metric.name), json!(format!("{} (inc)", metric.name))))
        .collect();
    let (out, open) = (std::cell::RefCell::new(out), b"[");
    out.borrow_mut().write_all(open)?;
    tree.walk(
        |_, node, is_first| {
            let mut out = out.borrow_mut();
            let separator = if is_first { "" } else { "," };
            let name = json!(model.names[node.name]);
            let kind = if model.is_loop(node.name) {
                "loop"
            } else {
                "function"
            };
            write!(
                out,
                "{separator}{{\"frame\":{{\"name\":{name},\"type\":\"{kind}\"}},\"metrics\":{{"
            )?;
            for (kind, (own, all)) in keys.iter().enumerate() {
                let separator = if kind == 0 { "" } else { "," };
                write!(
                    out,
                    "{separator}{own}:{},{all}:{}",
                    node.own[kind], node.all[kind]
                )?;
            }
            Ok(out.write_all(b"},\"children\":[")?)
        },
        |_| Ok::<_, ExportError>(out.borrow_mut().write_all(b"]}")?),
    )?;
    Ok(out.into_inner().write_all(b"]\n")?)
}
